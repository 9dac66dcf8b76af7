"""What the demo shows: before, while it runs (a live picture, or a line a second), and after."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from groupflow.demo.rows import TENANTS, ImportTask
from groupflow.demo.verdict import DemoFindings

_LINE_EVERY = 1.0  # seconds between two lines where there is no terminal
_BAR = 48  # characters of the longer bar
_NAMED = 5  # faults of a kind that are named; the rest are counted

# An attempt is logged when it ends, so the log doesn't tell what runs now. It tells what ran this
# many seconds ago: longer than any look-up takes. The rate is that of the last second.
_LOG_DELAY = 0.4
_TOTALS = f"""
SELECT coalesce(:now - min(started), 0), count(error), count(iif(ended > :now - 1, 1, NULL)),
    count(DISTINCT iif(started <= :now - {_LOG_DELAY} AND ended > :now - {_LOG_DELAY}, key, NULL))
FROM attempts
"""  # noqa: S608
# By daemon, the tasks that it was the last to handle: so that they add up to what was handled.
_DAEMONS = """
SELECT daemon, count(*)
FROM (SELECT daemon, max(ended) FROM attempts JOIN tasks USING (number) GROUP BY number)
GROUP BY 1 ORDER BY 1
"""
_TENANTS = """
SELECT tenant, count(DISTINCT tasks.key), count(DISTINCT attempts.number), count(DISTINCT number)
FROM tasks LEFT JOIN attempts USING (number) GROUP BY tenant
"""


class ImportProgress(NamedTuple):
    """How far the import is."""

    elapsed: float  # seconds since the first handler started; 0 before
    failed: int  # handlers that raised
    rate: int  # tasks handled in the last second
    groups_running: int  # groups that had a task running a moment ago
    tenants: dict[str, tuple[int, int, int]]  # groups (0: plain), handled tasks, tasks of each
    daemons: dict[str, int]  # tasks that each was the last to handle
    handled: int  # tasks whose handler has ended, each counted once: the sum of these
    total: int


def read_state(db: sqlite3.Connection, now: float) -> ImportProgress:
    """The state at a moment (monotonic clock), from the handlers' log."""
    tenants = {code: (groups, done, all_) for code, groups, done, all_ in db.execute(_TENANTS)}
    daemons = dict(db.execute(_DAEMONS))
    handled, total = sum(daemons.values()), sum(all_ for _, _, all_ in tenants.values())
    elapsed, failed, rate, running = db.execute(_TOTALS, {"now": now}).fetchone()
    return ImportProgress(elapsed, failed, rate, running, tenants, daemons, handled, total)


def intro(tasks: Sequence[ImportTask]) -> str:
    """What the demo imports, and what is hard about it."""
    groups = [task.group for task in tasks if task.group is not None]
    tenants = {task.tenant for task in tasks}
    return (
        "Real rows: flights out of New York and the weather there, 1 to 10 January 2013.\n"
        f"[bold]{len(tasks):,} import tasks for {len(tenants)} tenants[/]:"
        f" {len(groups):,} in {len(set(groups))} groups, {len(tasks) - len(groups):,} plain.\n"
        "A group is an aeroplane of an airline: its own row, then its flights, in order.\n"
    )


class Screen:
    """Redraws a picture on a terminal, prints a line about once a second elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # We redraw when there is news, without rich's refresh thread.
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._last = 0.0
        self._told = ""

    def open(self) -> AbstractContextManager[Any]:
        """Draw within the block; the last picture stays."""
        return self._live or nullcontext()

    def show(self, state: ImportProgress, published: int, happened: str = "") -> None:
        """Show how far the daemons and the publishing are, and what happened to the daemons."""
        now = time.monotonic()
        if self._live:
            self._live.update(_picture(state, published, happened), refresh=True)
            return
        if happened != self._told:
            self._told = happened
            self._console.print(f"  {happened}")
        if now - self._last >= _LINE_EVERY or state.handled == state.total:
            self._last = now
            self._console.print(f"  {_summed_up(state, published)}")


def _summed_up(state: ImportProgress, published: int) -> str:
    if not state.handled:
        return f"published {published:,} of {state.total:,}, the daemons are starting"
    daemons = ", ".join(f"{name} {handled:,}" for name, handled in state.daemons.items())
    failed = f"  [bold red]{state.failed:,} FAILED[/]" if state.failed else ""
    return (
        f"{state.elapsed:4.1f} s  [bold]{state.handled:,}[/] of {state.total:,} imported"
        f"  {state.rate:,}/s  {state.groups_running} groups at once  ({daemons}){failed}"
    )


def _picture(state: ImportProgress, published: int, happened: str) -> RenderableType:
    """A bar per tenant, and below what `_summed_up` says."""
    table = Table.grid(padding=(0, 2), expand=True)
    for ratio in (None, None, None, 1, None):
        table.add_column(no_wrap=True, ratio=ratio)
    for code, name in TENANTS.items():
        groups, handled, total = state.tenants[code]
        table.add_row(
            f"[bold]{code}[/]",
            name,
            f"[dim]{f'{groups} groups' if groups else 'plain'}[/]",
            ProgressBar(total=total, completed=handled),
            f"{'[green]' if handled == total else ''}{handled}/{total}",
        )
    below = (Text.from_markup(text) for text in (_summed_up(state, published), happened))
    return Padding(Group(table, Text(), *below), (1, 0, 1, 2))


@contextmanager
def step(console: Console, text: str) -> Iterator[None]:
    """Show that a step runs, and then how long it took."""
    began = time.monotonic()
    with console.status(f"{text} …") if console.is_terminal else nullcontext():
        yield
    console.print(f"[green]✓[/] {text} [dim]{time.monotonic() - began:.1f} s[/]")


def print_summary(console: Console, verdict: DemoFindings, killed: str, stopped: str) -> None:
    """Print the result: the speed, the checks, and any differences.

    `killed` names the daemon that was killed, and `stopped` says why the demo gave up, if either
    happened.
    """
    console.print(f"\n[bold red]{stopped}[/]\n" if stopped else "")
    if verdict.seconds:
        _print_speed(console, verdict)
    for check, kinds in verdict.checks.items():
        counts = ", ".join(f"{len(numbers):,} {kind}" for kind, numbers in kinds.items())
        faults = [
            f"{kind}: task {', '.join(map(str, numbers[:_NAMED]))}"
            for kind, numbers in kinds.items()
            if numbers
        ]
        _tick(console, check, counts, faults)
    _quote(console, verdict.errors)
    if killed:
        held = f"{verdict.crashed:,} tasks that {killed} held ran again, each in its place"
        _tick(console, "kill -9", held)
    rows = ", ".join(f"{table} {count:,}" for table, count in verdict.rows.items())
    compared = f"{rows} rows: {len(verdict.differences):,} differ from serial"
    _tick(console, "tables", compared, verdict.differences)
    console.print(
        "\n  Why groups: replayed in the order in which the workers would finish without,\n"
        f"  {verdict.ungrouped_failed:,} imports fail and {verdict.ungrouped_wrong:,} of"
        f" {sum(verdict.rows.values()):,} rows come out wrong."
    )
    equal = verdict.equal and not stopped
    said = "[bold green]Equal" if equal else "[bold red]NOT equal"
    console.print(f"\n{said} to a serial import{', row by row' if equal else ''}.[/]")


def _print_speed(console: Console, verdict: DemoFindings) -> None:
    took, serial = verdict.seconds, verdict.serial_seconds
    for name, seconds, style in (("one by one", serial, "yellow"), ("groupflow", took, "green")):
        bar = "█" * max(1, round(_BAR * seconds / max(took, serial)))
        console.print(f"  {name:<10} {duration(seconds):>12}  [{style}]{bar}[/]")
    console.print(
        f"  [bold]{serial / took:.0f} times as fast[/],"
        f" with up to {verdict.peak_groups} groups running at once\n"
        "  [dim]A task first waits 30 to 160 ms, in place of a real import's remote look-up;\n"
        "  one by one is the sum of those waits, plus the writing as measured.[/]\n"
    )


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _tick(console: Console, name: str, text: str, faults: Sequence[str] = ()) -> None:
    mark = "[bold red]✗[/]" if faults else "[green]✓[/]"
    console.print(f"  {mark} [bold]{name:<9}[/] {text}")
    _quote(console, faults)


def _quote(console: Console, lines: Sequence[str]) -> None:
    """Print the first few lines of data, never as markup."""
    for line in lines[:_NAMED]:
        console.print(f"      {line}", markup=False)
