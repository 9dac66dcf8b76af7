"""`groupflow status`: what waits, what runs, who runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.groups import line_of
from groupflow.cli.options import cut, moment, option, say, say_in_columns
from groupflow.cli.verb import Answer, Call, verb

if TYPE_CHECKING:
    from groupflow.operate.listing import GroupRow, ListedGroups
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.statistics import Rates
    from groupflow.operate.totals import Totals

verbs = typer.Typer()

HELD_SHOWN = 3  # groups of each kind that are named
LIMITS_SHOWN = 5  # limits by hand
POOLS_SHOWN = 5  # pools that something waits for
AT_LEAST = 10  # seconds that rates have to be of
LATE = 5.0  # seconds: events that wait for so long are pointed out


@verb(verbs, "status")
def status(call: Call) -> Answer:
    """Show totals, groups and daemons at this instant, and what is held: paused, parked.

    An oldest wait is how long the task that goes next could have been claimed; rates are of the
    last minute.

    For example:

      groupflow status

      groupflow status --json | jq .grouped.queued
    """
    totals, rates, held = call.ask(_look)
    shown = {**totals.as_json(), "rates": rates}
    return Answer(shown, lambda: _print(totals, rates, held))


@verb(verbs, "actions")
def actions(
    call: Call,
    *,
    limit: Annotated[int, option("--limit N", "How many at most.", min=1, max=1000)] = 50,
) -> Answer:
    """List what operators did, by these verbs or on the page: the last thousand, latest first.

    For example:

      groupflow actions

      groupflow actions --limit 1000 --json | jq '.[] | select(.by == "ada")'
    """
    from groupflow.operate.actions import latest

    found = call.ask(lambda namespace: latest(namespace, limit + 1))
    shown = found[:limit]
    lines = [f"{moment(each.at)}  {each.words}" for each in shown]
    none = ["operators have done nothing yet"]
    return Answer(shown, lines or none, cut(limit, found[limit:]))


async def _look(namespace: Namespace) -> tuple[Totals, Rates | None, list[GroupRow]]:
    """Totals; rates where daemons have counted; some of the groups that deaths or people hold."""
    from groupflow.operate.listing import list_groups
    from groupflow.operate.statistics import rates_of, read_samples
    from groupflow.operate.totals import read_totals

    totals = await read_totals(namespace)
    held: list[GroupRow] = []
    kinds: list[tuple[ListedGroups, int]] = [("parked", totals.parked), ("paused", totals.paused)]
    for state, count in kinds:
        if count:
            page = await list_groups(namespace, state, limit=HELD_SHOWN)
            held += page.groups[:HELD_SHOWN]
    return totals, rates_of(await read_samples(namespace), totals), held


def paused_line(found: Totals) -> str:
    """Who paused everything, and since when; empty unless all is paused."""
    hold = found.everything_paused
    if hold is None:
        return ""
    return f"PAUSED: everything, by {hold.by} since {moment(hold.since)}: groupflow resume --all"


def unrun_line(found: Totals) -> str:
    """What no living daemon means; empty where one lives."""
    waits = "tasks wait until one starts, and messages in RabbitMQ, which groupflow doctor counts"
    return "" if found.has_daemon else f"no daemon is running: {waits}"


def outbox_line(found: Totals) -> str:
    """What RabbitMQ is still to be told; empty unless it is late, or stops claims."""
    if not found.outbox_full and found.outbox_age < LATE:
        return ""
    from groupflow.operate.reasons import duration, waiting

    oldest = duration(found.outbox_age)
    told = f"{waiting(found.outbox, 'event')} to be told, the oldest for {oldest}"
    full = f"; events.max_memory is reached in {found.outbox_full} partition(s): nothing is claimed"
    return f"{told}{full if found.outbox_full else ''}"


def limit_lines(found: Totals) -> list[str]:
    """What is limited by hand, some of it by name."""
    shown = found.by_hand[:LIMITS_SHOWN]
    left = found.limited_groups + found.limited_tenants + found.limited_types - len(shown)
    lines = [f"by hand: {line_of(each)}" for each in shown]
    return [*lines, f"by hand: {left:,} more limits: groupflow limit"] if left > 0 else lines


def pool_lines(found: Totals) -> list[str]:
    """The queued tasks that workers pull, of some pools."""
    lines = [each.words() for each in found.pools[:POOLS_SHOWN]]
    left = len(found.pools) - len(lines)
    return [*lines, f"waiting for {left:,} more pools: groupflow pools"] if left > 0 else lines


def tenants_line(found: Totals) -> str:
    """What waits of tenants that may start nothing, with some of their names."""
    from groupflow.operate.reasons import duration

    names = ", ".join(f"tenant {name}" for name in found.standing_names)
    more = " …" if found.standing_tenants > len(found.standing_names) else ""
    what = f"groups {found.standing:,}, plain tasks {found.standing_plain:,} wait"
    said = f"tenants {found.standing_tenants:,} at their limits ({names}{more}): {what}"
    return f"{said}, the oldest for {duration(found.standing_waited)}; the page's Tenants has each"


def groups_line(found: Totals) -> str:
    """How many groups are in which state."""
    return (
        f"groups {found.groups:,}: {found.running_grouped:,} running, {found.ready:,} ready, "
        f"{found.delayed:,} delayed, {found.parked:,} parked, {found.paused:,} paused"
    )


def _print(found: Totals, rates: Rates | None, held: list[GroupRow]) -> None:
    from groupflow.operate.reasons import counted, duration

    if found.everything_paused:
        say(paused_line(found), bold=True, fg="red")
    awake = found.queued_grouped - found.asleep
    pools = (
        ("plain", found.queued_plain, found.running_plain, found.waited_plain),
        ("grouped", awake, found.running_grouped, found.waited_grouped),
    )
    say_in_columns(
        ("", "queued", "running", "oldest wait"),
        *(
            (pool, f"{queued:,}", f"{running:,}", duration(waited) if waited else "-")
            for pool, queued, running, waited in pools
        ),
    )
    for line in pool_lines(found):
        say(line)
    if found.asleep:
        say(f"asleep, beside the queued ones: {counted(found.asleep, 'shard')} of scans")
    say(groups_line(found))
    if found.paused_too:
        say(f"paused ones that still run, or are parked too: {found.paused_too:,}")
    for line in (*_held_lines(found, held), *limit_lines(found)):
        say(line, bold=True)
    for line in _totals_lines(found, rates):
        say(line)
    for line in _standing_lines(found):
        say(line, bold=True)
    if unrun := unrun_line(found):
        say(unrun, bold=True, fg="red")
    if not found.daemons:
        return
    daemons = []
    for each in found.daemons:
        word = ", its lease has run out" if each.late else ", draining" if each.draining else ""
        age = f"{duration(each.heartbeat_age)} ago{word}"
        daemons.append((each.name, each.host, str(each.pid), str(each.workers), age))
    say_in_columns(("daemon", "host", "pid", "workers", "heartbeat"), *daemons)


def _held_lines(found: Totals, held: list[GroupRow]) -> Iterator[str]:
    """The groups that a dead letter or a person holds, by name, some of each."""
    for row in held:
        by = f"behind dead letter {row.by}" if row.state == "parked" else f"by {row.by}"
        yield f"  {row.state}: {row.group}, {by}, since {moment(row.since)}"
    left = found.parked + found.paused - len(held)
    if held and left > 0:
        yield f"  and {left:,} more"


def dead_words(found: Totals) -> str:
    """How many dead letters were made, ever, and are there now."""
    return f"dead letters made {found.buried_total:,}, there now {found.dead:,}"


def _totals_lines(found: Totals, rates: Rates | None) -> Iterator[str]:
    from groupflow.operate.reasons import counted, waiting
    from groupflow.operate.totals import ENDS

    if found.standing_tenants:
        yield tenants_line(found)
    if number := found.standing_types:
        yield f"types {number:,} at their limits: {waiting(found.capped, 'group')}"
    over = f"done {found.done_total:,}, {dead_words(found)}"
    ends = {how: getattr(found, f"{how}_total") for how in ENDS[1:]}
    yield over + "".join(f", {how} {number:,}" for how, number in ends.items() if number)
    if found.drained_total:
        yield f"groups drained {counted(found.drained_total, 'time')}, each told by a task"
    if rates:
        yield rates_line(rates)
    if found.dead_staying:
        yield f"{found.dead_staying:,} of the dead stay in Redis: RabbitMQ refuses them"


def rates_line(rates: Rates) -> str:
    """Tasks a second; where these are few, how many there were in all."""
    span = max(1, round(rates.seconds))
    told = {"in": rates.taken_in, "done": rates.done, "dead": rates.buried}
    if max(told.values()) >= 1 and span >= AT_LEAST:
        words = ", ".join(f"{each:,.1f} {what}" for what, each in told.items())
        return f"a second, over the last {span} s: {words}"
    words = ", ".join(f"{round(each * rates.seconds):,} {what}" for what, each in told.items())
    return f"in the last {span} s: {words}"


def _standing_lines(found: Totals) -> Iterator[str]:
    for intake in found.intake:
        yield f"intake of {intake.daemon} stands since {moment(intake.since)}: {intake.paused}"
    if untold := outbox_line(found):
        yield untold
    for held in found.held_back:
        yield (
            f"partition {held.partition} gives nothing out since {moment(held.since)}, until every "
            f"daemon has renewed or {moment(held.until)}: its Redis may have lost claims"
        )
