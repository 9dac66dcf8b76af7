"""`groupflow limit`: other limits for a group or a tenant, for a while."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli.options import ConfigOption, JsonOption, moment, print_json, seconds_for
from groupflow.cli.safe import say
from groupflow.cli.store import ask_store

if TYPE_CHECKING:
    from groupflow.core.limits import HandLimit, SetByHand
    from groupflow.operate.limits import ByHand, LimitsByHand
    from groupflow.operate.namespace import Namespace

verbs = typer.Typer()
_limit = typer.Typer(
    help="Other limits than configured for a group or a tenant, for a while.",
    invoke_without_command=True,
)
verbs.add_typer(_limit, name="limit")

ConcurrencyOption = Annotated[
    int | None, typer.Option(metavar="N", help="Tasks at once; of a tenant 0: any number.")
]
RateOption = Annotated[
    str | None,
    typer.Option(metavar="RATE", help='Starts: 5/s, 600/min, "10/s burst 50"; none: any number.'),
]
ForOption = Annotated[
    str, typer.Option("--for", metavar="TIME", help="Then it ends by itself: 30s, 10m, 2h, 1d.")
]
OffOption = Annotated[bool, typer.Option("--off", help="End what was set, now.")]


@_limit.callback()
def limit(
    context: typer.Context, *, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List what holds just now in place of the configuration, the first to end first.

    For example:

      groupflow limit

      groupflow limit tenant 42 --rate 5/s --for 10m

      groupflow limit group contact:42 --concurrency 4

      groupflow limit tenant 42 --off
    """
    if context.invoked_subcommand is None:
        _print_list(config, as_json=as_json)
    elif config is not None or as_json:
        verb = f"groupflow limit {context.invoked_subcommand} NAME"
        raise typer.BadParameter(f"Put options behind the verb: {verb} --config FILE.")


@_limit.command("list")
def list_(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List what holds just now in place of the configuration.

    For example:

      groupflow limit list --json
    """
    _print_list(config, as_json=as_json)


@_limit.command("tenant")
def tenant(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in [tenants.NAME].")],
    *,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    for_: ForOption = "1h",
    off: OffOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a tenant other limits for a while, in every application. What isn't given stays.

    For example:

      groupflow limit tenant 42 --rate 5/s --for 10m

      groupflow limit tenant 42 --concurrency 0 --rate none

      groupflow limit tenant 42 --off
    """
    from groupflow.core.limits import HandLimit

    _change(
        HandLimit("tenant", name, concurrency, _rate(rate)), for_, config, off=off, as_json=as_json
    )


@_limit.command("group")
def group(
    key: Annotated[str, typer.Argument(metavar="GROUP", help="The group key as rendered.")],
    *,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    for_: ForOption = "1h",
    off: OffOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a group other limits for a while. What isn't given stays as configured.

    For example:

      groupflow limit group contact:42 --concurrency 4 --for 2h

      groupflow limit group contact:42 --off
    """
    from groupflow.core.limits import HandLimit

    _change(
        HandLimit("group", key, concurrency, _rate(rate)), for_, config, off=off, as_json=as_json
    )


def _rate(text: str | None) -> str | None:
    return "" if text is not None and text.strip().lower() == "none" else text


def _change(limit: HandLimit, for_: str, config: Path | None, *, off: bool, as_json: bool) -> None:
    by = getpass.getuser()
    what = f"{limit.kind} {limit.name}"
    if off:
        if limit.concurrency is not None or limit.rate is not None:
            raise typer.BadParameter("--off ends all that was set: give nothing beside it.")
        ended = ask_store(config, lambda namespace: _all(namespace).end(limit.kind, limit.name, by))
        words = "goes on as configured" if ended else "was not limited by hand"
        _report(limit, f"{what} {words}", as_json=as_json, limited=False, changed=ended)
        return
    length = seconds_for(for_)
    try:
        limit.check(length)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    ask_store(config, lambda namespace: _all(namespace).begin(limit, by, length))
    words = f"{what}: {limit.words}, for {for_}; then it goes on as configured"
    _report(limit, words, as_json=as_json, limited=True, changed=True)


def _all(namespace: Namespace) -> LimitsByHand:
    from groupflow.operate.limits import LimitsByHand

    return LimitsByHand(namespace)


def _report(limit: HandLimit, words: str, *, as_json: bool, **facts: bool) -> None:
    if as_json:
        print_json({"kind": limit.kind, "name": limit.name, **facts})
    else:
        say(words)


def _print_list(config: Path | None, *, as_json: bool) -> None:
    def every(namespace: Namespace) -> Any:
        return _all(namespace).every()

    found: ByHand = ask_store(config, every)
    if as_json:
        print_json([asdict(each) for each in found.limits])
        return
    for each in found.limits:
        say(line_of(each))
    if not found.limits:
        say("nothing is limited by hand")


def line_of(limit: SetByHand) -> str:
    """One that holds, for people."""
    by = f" by {limit.by}" if limit.by else ""
    return f"{limit.kind} {limit.name}: {limit.words}, until {moment(limit.until)}, set{by}"
