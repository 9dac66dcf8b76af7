"""`groupflow limit`: other limits for a group or a tenant, for a while."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from typing import Annotated

import typer

from groupflow.cli.options import moment, seconds_for
from groupflow.cli.verb import Answer, Call, listing, verb
from groupflow.core.limits import HandLimit, SetByHand

verbs = typer.Typer()
_limit = typer.Typer(help="Other limits than configured for a group or a tenant, for a while.")
verbs.add_typer(_limit, name="limit")


def _rate(text: str | None) -> str | None:
    return "" if text is not None and text.strip().lower() == "none" else text


ConcurrencyOption = Annotated[
    int | None, typer.Option(metavar="N", help="Tasks at once; of a tenant 0: any number.")
]
RateOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help='Starts: 5/s, 600/min, "10/s burst 50"; none: any number.',
        callback=_rate,
    ),
]
ForOption = Annotated[
    str, typer.Option("--for", metavar="TIME", help="Then it ends by itself: 30s, 10m, 2h, 1d.")
]
OffOption = Annotated[bool, typer.Option("--off", help="End what was set, now.")]


@listing(_limit, "limit")
def limit(call: Call) -> Answer:
    """List what holds just now in place of the configuration, the first to end first."""
    return list_(call)


@verb(_limit, "list")
def list_(call: Call) -> Answer:
    """List what holds just now in place of the configuration.

    For example:

      groupflow limit list --json
    """
    from groupflow.operate.limits import LimitsByHand

    found = call.ask(lambda namespace: LimitsByHand(namespace).every()).limits
    return Answer([*map(asdict, found)], [*map(line_of, found)] or ["nothing is limited by hand"])


@verb(_limit, "tenant")
def tenant(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in [tenants.NAME].")],
    *,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    for_: ForOption = "1h",
    off: OffOption = False,
) -> Answer:
    """Give a tenant other limits for a while, in every application. What isn't given stays.

    For example:

      groupflow limit tenant 42 --rate 5/s --for 10m

      groupflow limit tenant 42 --concurrency 0 --rate none

      groupflow limit tenant 42 --off
    """
    return _change(call, HandLimit("tenant", name, concurrency, rate), for_, off=off)


@verb(_limit, "group")
def group(
    call: Call,
    key: Annotated[str, typer.Argument(metavar="GROUP", help="The group key as rendered.")],
    *,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    for_: ForOption = "1h",
    off: OffOption = False,
) -> Answer:
    """Give a group other limits for a while. What isn't given stays as configured.

    For example:

      groupflow limit group contact:42 --concurrency 4 --for 2h

      groupflow limit group contact:42 --off
    """
    return _change(call, HandLimit("group", key, concurrency, rate), for_, off=off)


def _change(call: Call, limit: HandLimit, for_: str, *, off: bool) -> Answer:
    from groupflow.operate.limits import LimitsByHand

    by, what = getpass.getuser(), f"{limit.kind} {limit.name}"
    told = {"kind": limit.kind, "name": limit.name, "limited": not off}
    if off:
        if limit.concurrency is not None or limit.rate is not None:
            raise typer.BadParameter("--off ends all that was set: give nothing beside it.")
        ended = call.ask(lambda namespace: LimitsByHand(namespace).end(limit.kind, limit.name, by))
        words = "goes on as configured" if ended else "was not limited by hand"
        return Answer({**told, "changed": ended}, [f"{what} {words}"])
    length = seconds_for(for_)
    try:
        limit.check(length)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    call.ask(lambda namespace: LimitsByHand(namespace).begin(limit, by, length))
    words = f"{what}: {limit.words}, for {for_}; then it goes on as configured"
    return Answer({**told, "changed": True}, [words])


def line_of(limit: SetByHand) -> str:
    """One that holds, for people."""
    by = f" by {limit.by}" if limit.by else ""
    return f"{limit.kind} {limit.name}: {limit.words}, until {moment(limit.until)}, set{by}"
