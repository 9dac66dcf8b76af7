"""`groupflow why`, `pause`, `resume`, `limit`: one group's story, and what holds it.

A group can be held; and it, a tenant, or a type can have other limits than configured for a while.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.options import argument, moment, option, seconds_for, user_name
from groupflow.cli.verb import Answer, Call, listing, verb
from groupflow.core.limits import HandLimit, Limited, SetByHand

if TYPE_CHECKING:
    from groupflow.operate.ended import Ended
    from groupflow.operate.groups import Why
    from groupflow.operate.namespace import Namespace

verbs = typer.Typer()
_limit = typer.Typer(
    help="Other limits than configured for a group, a tenant or a type, for a while."
)
verbs.add_typer(_limit, name="limit")

_GROUP = argument("GROUP", "The group key as rendered: contact:42.")
GroupArgument = Annotated[str | None, _GROUP]
KeyArgument = Annotated[str, _GROUP]
AllOption = Annotated[bool, option("--all", "Everything, plain tasks too.")]


@verb(verbs, "why")
def why(call: Call, group: KeyArgument) -> Answer:
    """Say in one line why a group is not moving; below it, which of its tasks ended lately.

    For example:

      groupflow why contact:42
    """
    from groupflow.operate.ended import KEPT, ended_lately
    from groupflow.operate.known import doubt
    from groupflow.operate.scans import explain

    bounds = call.settings.max_queued()

    async def look(namespace: Namespace) -> tuple[Why, list[Ended], str]:
        found = await explain(namespace, group, max_queued=bounds)
        unknown = await doubt(namespace, call.settings, "group", group)
        return found, await ended_lately(namespace, group), unknown

    found, lately, unknown = call.ask(look)
    told = [f"{found.group} is {found.state}, {found.queued} waiting: {found.reason}"]
    if lately:
        told.append(f"ended lately, among the last {KEPT:,} of all groups that ended there:")
    value = {**asdict(found), "lately": lately, "known": not unknown}
    return Answer(value, [*told, *map(_end, lately)], [unknown] if unknown else [])


def _end(ended: Ended) -> str:
    """A task that ended lately, for people."""
    facts = [str(moment(ended.since)), ended.state, ended.id, ended.type or "(no type)"]
    if ended.seconds is not None:
        facts.append(f"attempt {ended.attempt} took {ended.seconds:,.3f} s on {ended.daemon}")
    return "  " + "  ".join(facts)


@verb(verbs, "pause")
def pause(
    call: Call,
    group: GroupArgument = None,
    *,
    everything: AllOption = False,
    for_: Annotated[
        str | None, option("--for TIME", "Then it goes on by itself: 30s, 10m, 2h, 1d.")
    ] = None,
) -> Answer:
    """Hold a group, or everything: nothing more of it is started. Intake goes on.

    For example:

      groupflow pause contact:42

      groupflow pause contact:42 --for 30s

      groupflow pause --all
    """
    from groupflow.operate.groups import Groups

    target, by = _target(group, everything=everything), user_name()
    length = None if for_ is None else seconds_for(for_)
    changed = call.act(
        "paused",
        lambda namespace: Groups(namespace).pause(target, by, length),
        group=target or "everything",
        seconds=length,
    )
    words = "paused" if changed else "was paused already"
    if changed and for_ is not None:
        words = f"paused, and goes on by itself in {for_}"
    answer = _answer(target, words, paused=True, changed=changed)
    return answer if everything else _with_doubt(call, answer, "group", target)


@verb(verbs, "resume")
def resume(call: Call, group: GroupArgument = None, *, everything: AllOption = False) -> Answer:
    """Let a group, or everything, go on. What was paused by name has to be resumed by name.

    For example:

      groupflow resume contact:42

      groupflow resume --all
    """
    from groupflow.operate.groups import Groups

    target = _target(group, everything=everything)
    changed = call.act(
        "resumed", lambda namespace: Groups(namespace).resume(target), group=target or "everything"
    )
    words = "goes on" if changed else "was not paused"
    return _answer(target, words, paused=False, changed=changed)


def _target(group: str | None, *, everything: bool) -> str:
    if everything == bool(group):
        raise typer.BadParameter("Name one group, or give --all.")
    return group or ""


def _answer(target: str, words: str, **facts: bool) -> Answer:
    return Answer({"group": target or None, **facts}, [f"{target or 'everything'} {words}"])


def _with_doubt(call: Call, answer: Answer, kind: Limited, name: str) -> Answer:
    """The same, and on stderr that nothing is known of that name, where that is so."""
    from groupflow.operate.known import doubt

    words = call.ask(lambda namespace: doubt(namespace, call.settings, kind, name))
    if not words:
        return answer
    return replace(answer, value={**answer.value, "known": False}, errors=[words])


def _rate(text: str | None) -> str | None:
    return "" if text is not None and text.strip().lower() == "none" else text


@dataclass(frozen=True)
class LimitOptions:
    """Other limits than configured."""

    concurrency: Annotated[
        int | None, option("--concurrency N", "Tasks at once; of a tenant or a type 0: any number.")
    ] = None
    rate: Annotated[
        str | None,
        option(
            "--rate RATE",
            'Starts: 5/s, 600/min, "10/s burst 50"; none: any number.',
            callback=_rate,
        ),
    ] = None
    for_: Annotated[str, option("--for TIME", "Then it ends by itself: 30s, 10m, 2h, 1d.")] = "1h"
    off: Annotated[bool, option("--off", "End what was set, now.")] = False


@listing(_limit, "limit")
@verb(_limit, "list")
def list_(call: Call) -> Answer:
    """List what holds just now in place of the configuration.

    For example:

      groupflow limit list --json
    """
    from groupflow.operate.limits import LimitsByHand

    found = call.ask(lambda namespace: LimitsByHand(namespace).every()).limits
    return Answer(found, [*map(line_of, found)] or ["nothing is limited by hand"])


@verb(_limit, "tenant")
def tenant(
    call: Call,
    name: Annotated[str, argument("NAME", "As in [tenants.NAME].")],
    limits: LimitOptions,
) -> Answer:
    """Give a tenant other limits for a while, in every application. What isn't given stays.

    For example:

      groupflow limit tenant 42 --rate 5/s --for 10m

      groupflow limit tenant 42 --concurrency 0 --rate none

      groupflow limit tenant 42 --off
    """
    return _change(call, "tenant", name, limits)


@verb(_limit, "group")
def group(call: Call, key: KeyArgument, limits: LimitOptions) -> Answer:
    """Give a group other limits for a while. What isn't given stays as configured.

    For example:

      groupflow limit group contact:42 --concurrency 4 --for 2h

      groupflow limit group contact:42 --off
    """
    return _change(call, "group", key, limits)


@verb(_limit, "type")
def type_(
    call: Call,
    pattern: Annotated[str, argument("PATTERN", "A type, or several: 'import.*'.")],
    limits: LimitOptions,
) -> Answer:
    """Give all tasks of a type other limits for a while. What isn't given stays as configured.

    A pattern that isn't configured goes before those that are.

    For example:

      groupflow limit type transcode --concurrency 2 --for 2h

      groupflow limit type 'import.*' --rate 5/s

      groupflow limit type transcode --off
    """
    return _change(call, "type", pattern, limits)


def _change(call: Call, kind: Limited, name: str, limits: LimitOptions) -> Answer:
    from groupflow.operate.limits import LimitsByHand

    limit, off = HandLimit(kind, name, limits.concurrency, limits.rate), limits.off
    by, what = user_name(), f"{limit.kind} {limit.name}"
    told = {"kind": limit.kind, "name": limit.name, "limited": not off}
    if off:
        if limit.concurrency is not None or limit.rate is not None:
            raise typer.BadParameter("--off ends all that was set: give nothing beside it.")
        ended = call.act(
            "unlimited",
            lambda namespace: LimitsByHand(namespace).end(limit.kind, limit.name, by),
            **{kind: name},
        )
        words = "goes on as configured" if ended else "was not limited by hand"
        return Answer({**told, "changed": ended}, [f"{what} {words}"])
    length = seconds_for(limits.for_)
    try:
        limit.check(length)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    call.act(
        "limited",
        lambda namespace: LimitsByHand(namespace).begin(limit, by, length),
        **{kind: name, "limits": limit.words, "seconds": length},
    )
    words = f"{what}: {limit.words}, for {limits.for_}; then it goes on as configured"
    return _with_doubt(call, Answer({**told, "changed": True}, [words]), kind, name)


def line_of(limit: SetByHand) -> str:
    """One that holds, for people."""
    by = f" by {limit.by}" if limit.by else ""
    return f"{limit.kind} {limit.name}: {limit.words}, until {moment(limit.until)}, set{by}"
