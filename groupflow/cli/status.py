"""`groupflow status`: what waits, what runs, who runs it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from groupflow.cli.limits import line_of
from groupflow.cli.options import ConfigOption, JsonOption, moment, print_json
from groupflow.cli.safe import plain_text
from groupflow.cli.store import ask_store

if TYPE_CHECKING:
    from rich.console import Console

    from groupflow.operate.listing import GroupRow, ListedGroups
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.statistics import Rates
    from groupflow.operate.totals import Totals

verbs = typer.Typer()

HELD_SHOWN = 3  # groups of each kind that are named
LIMITS_SHOWN = 5  # limits by hand


@dataclass(frozen=True, slots=True)
class _Status:
    """All that it tells."""

    totals: Totals
    rates: Rates | None  # over the last minute, None where no daemon has counted
    held: list[GroupRow]  # some of the groups that deaths or people hold

    def as_json(self) -> dict[str, Any]:
        """The public shape of ``groupflow status --json``."""
        return {**self.totals.as_json(), "rates": asdict(self.rates) if self.rates else None}


@verbs.command("status")
def status(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show totals, groups and daemons at this instant, and what is held: paused, parked.

    An oldest wait is how long the task that goes next could have been claimed; rates are of the
    last minute.

    For example:

      groupflow status

      groupflow status --json | jq .grouped.queued
    """
    found = ask_store(config, _look)
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)


async def _look(namespace: Namespace) -> _Status:
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
    return _Status(totals, rates_of(await read_samples(namespace), totals.at), held)


def paused_line(found: Totals) -> str:
    """Who paused everything, and since when; empty unless all is paused."""
    hold = found.everything_paused
    if hold is None:
        return ""
    return f"PAUSED: everything, by {hold.by} since {moment(hold.since)}: groupflow resume --all"


def limit_lines(found: Totals, most: int = LIMITS_SHOWN) -> list[str]:
    """What is limited by hand, some of it by name."""
    number = found.limited_groups + found.limited_tenants
    shown = found.by_hand[:most]
    lines = [f"by hand: {line_of(each)}" for each in shown]
    if number > len(shown):
        lines.append(f"by hand: {number - len(shown):,} more limits: groupflow limit")
    return lines


def _print(status: _Status) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = status.totals
    console = Console(soft_wrap=True)
    if found.everything_paused:
        console.print(Text(plain_text(paused_line(found)), style="bold red"))
    tasks = Table("", "queued", "running", "oldest wait", box=None)
    for pool, queued, running, waited in (
        ("plain", found.queued_plain, found.running_plain, found.waited_plain),
        ("grouped", found.queued_grouped, found.running_grouped, found.waited_grouped),
    ):
        tasks.add_row(pool, f"{queued:,}", f"{running:,}", f"{waited:,.1f} s" if waited else "-")
    console.print(tasks)
    if found.asleep:
        console.print(f"of the queued ones, {found.asleep:,} are shards of scans that sleep")
    console.print(
        f"groups {found.groups:,}: {found.running_grouped:,} running, {found.ready:,} ready, "
        f"{found.delayed:,} delayed, {found.parked:,} parked, {found.paused:,} paused"
    )
    _print_held(console, status)
    for line in limit_lines(found):
        console.print(Text(plain_text(line), style="bold"))
    if found.standing_tenants:
        console.print(
            f"tenants {found.standing_tenants:,} at their limits: {found.standing:,} groups wait"
        )
    over = f"done {found.done_total:,}, failed {found.buried_total:,}, dead {found.dead:,}"
    replaced = found.superseded_total
    console.print(f"{over}, superseded {replaced:,}" if replaced else over)
    if status.rates:
        rates = status.rates
        console.print(
            f"a second, over the last minute: {rates.taken_in:,.1f} in, {rates.done:,.1f} done, "
            f"{rates.buried:,.1f} failed"
        )
    if found.dead_staying:
        console.print(f"{found.dead_staying:,} of the dead stay in Redis: RabbitMQ refuses them")
    for standing in found.intake:
        line = (
            f"intake of {standing.daemon} stands since {moment(standing.since)}: {standing.paused}"
        )
        console.print(Text(plain_text(line), style="bold"))
    for held in found.held_back:
        console.print(
            f"partition {held.partition} gives nothing out since {moment(held.since)}, until every "
            f"daemon has renewed or {moment(held.until)}: its Redis may have lost claims",
            style="bold",
        )
    if not found.daemons:
        console.print("no daemon is running")
        return
    daemons = Table("daemon", "host", "pid", "workers", "heartbeat", box=None)
    for each in found.daemons:
        # Text is taken as it is: a name must not be read as markup.
        name, host = Text(plain_text(each.name)), Text(plain_text(each.host))
        daemons.add_row(
            name, host, str(each.pid), str(each.workers), f"{each.heartbeat_age:.1f} s ago"
        )
    console.print(daemons)


def _print_held(console: Console, status: _Status) -> None:
    """The groups that a dead letter or a person holds, by name, some of each."""
    from rich.text import Text

    for row in status.held:
        by = f"behind dead letter {row.by}" if row.state == "parked" else f"by {row.by}"
        line = f"  {row.state}: {row.group}, {by}, since {moment(row.since)}"
        console.print(Text(plain_text(line), style="bold"))
    named = len(status.held)
    left = status.totals.parked + status.totals.paused - named
    if named and left > 0:
        console.print(f"  and {left:,} more")
