"""`groupflow status`: what waits, what runs, who runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from groupflow.cli.attempts import moment
from groupflow.cli.options import ConfigOption, JsonOption, print_json
from groupflow.cli.safe import plain_text
from groupflow.cli.store import ask_store

if TYPE_CHECKING:
    from groupflow.operate.totals import Totals

verbs = typer.Typer()


@verbs.command("status")
def status(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show totals, groups and daemons at this instant.

    For example:

      groupflow status

      groupflow status --json | jq .grouped.queued
    """
    from groupflow.operate.whole.figures import read_totals

    found = ask_store(config, read_totals)
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)


def _print(found: Totals) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    tasks = Table("", "queued", "running", box=None)
    tasks.add_row("plain", f"{found.queued_plain:,}", f"{found.running_plain:,}")
    tasks.add_row("grouped", f"{found.queued_grouped:,}", f"{found.running_grouped:,}")
    console.print(tasks)
    console.print(
        f"groups {found.groups:,}: {found.running_grouped:,} running, {found.ready:,} ready, "
        f"{found.delayed:,} delayed, {found.parked:,} parked"
    )
    console.print(f"done {found.done_total:,}, failed {found.buried_total:,}, dead {found.dead:,}")
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
