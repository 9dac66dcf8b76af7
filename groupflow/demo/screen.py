"""What the demo shows while it runs: a live picture on a terminal, a line a second elsewhere."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from groupflow.demo.summary import tell
from groupflow.demo.tasks import AIRLINES, STATIONS

_LINE_EVERY = 1.0  # seconds between two lines where there is no terminal

# An attempt is logged when it ends, so what runs right now is not known yet. What ran this many
# seconds ago is: longer than any look-up takes. The rate is that of the last second.
_LOG_DELAY = 0.4
_TOTALS = f"""
SELECT coalesce(:now - min(started), 0), count(error), count(iif(ended > :now - 1, 1, NULL)),
    count(DISTINCT iif(started <= :now - {_LOG_DELAY} AND ended > :now - {_LOG_DELAY}, key, NULL))
FROM attempts
"""  # noqa: S608
_TENANTS = """
SELECT tenant, count(DISTINCT tasks.key), count(DISTINCT attempts.number), count(DISTINCT number)
FROM tasks LEFT JOIN attempts USING (number) GROUP BY tenant
"""


@dataclass(frozen=True, slots=True)
class State:
    """How far it is.

    Attributes:
        elapsed: seconds since the first handler started; 0 before.
        failed: handlers that raised.
        rate: tasks handled in the last second.
        groups_running: groups that had a task running a moment ago.
        tenants: by tenant: groups (0: plain), handled tasks, tasks.
        daemons: tasks handled by each, by its name.
    """

    elapsed: float
    failed: int
    rate: int
    groups_running: int
    tenants: dict[str, tuple[int, int, int]]
    daemons: dict[str, int]

    @property
    def handled(self) -> int:
        """Tasks whose handler has ended, each counted once."""
        return sum(handled for _, handled, _ in self.tenants.values())

    @property
    def total(self) -> int:
        """Tasks in all."""
        return sum(total for _, _, total in self.tenants.values())


def read_state(db: sqlite3.Connection, now: float) -> State:
    """The state at a moment (monotonic clock), as the handlers' log has it."""
    tenants = {code: (groups, done, all_) for code, groups, done, all_ in db.execute(_TENANTS)}
    daemons = db.execute("SELECT daemon, count(*) FROM attempts GROUP BY daemon ORDER BY daemon")
    elapsed, failed, rate, running = db.execute(_TOTALS, {"now": now}).fetchone()
    return State(elapsed, failed, rate, running, tenants, dict(daemons))


class Screen:
    """Redraws a picture on a terminal, prints a line about once a second elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # We redraw when there is news: no refresh thread of rich's needed.
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._last = 0.0
        self._told = ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Draw in here; the last picture is left standing."""
        with self._live or nullcontext():
            yield

    def show(self, state: State, published: int, happened: str = "") -> None:
        """Show the latest state; called a few times a second.

        Args:
            state: how far the daemons are.
            published: messages that the broker has confirmed.
            happened: what was done to the daemons.
        """
        now = time.monotonic()
        if self._live:
            self._live.update(picture(state, published, happened), refresh=True)
            return
        if happened != self._told:
            self._told = happened
            tell(self._console, f"  {happened}")
        if now - self._last >= _LINE_EVERY or state.handled == state.total:
            self._last = now
            tell(self._console, f"  {summed_up(state, published)}")


def summed_up(state: State, published: int) -> str:
    """The state in a line."""
    if not state.handled:
        return f"published {published:,} of {state.total:,}, the daemons are starting"
    daemons = ", ".join(f"{name} {handled:,}" for name, handled in state.daemons.items())
    failed = f"  [bold red]{state.failed:,} FAILED[/]" if state.failed else ""
    return (
        f"{state.elapsed:4.1f} s  [bold]{state.handled:,}[/] of {state.total:,} imported"
        f"  {state.rate:,}/s  {state.groups_running} groups at once  ({daemons}){failed}"
    )


def picture(state: State, published: int, happened: str) -> RenderableType:
    """The state as a picture for a terminal: a bar per tenant, the daemons, the speed."""
    table = Table.grid(padding=(0, 2), expand=True)
    for ratio in (None, None, None, 1, None):
        table.add_column(no_wrap=True, ratio=ratio)
    for code, name in (AIRLINES | STATIONS).items():
        groups, handled, total = state.tenants[code]
        table.add_row(
            f"[bold]{code}[/]",
            name,
            f"[dim]{f'{groups} groups' if groups else 'plain'}[/]",
            ProgressBar(total=total, completed=handled),
            f"{'[green]' if handled == total else ''}{handled}/{total}",
        )
    below = (Text.from_markup(text) for text in (summed_up(state, published), happened))
    return Padding(Group(table, Text(), *below), (1, 0, 1, 2))


@contextmanager
def step(console: Console, text: str) -> Iterator[None]:
    """Show that something is being done, and how long it took once it is."""
    began = time.monotonic()
    with console.status(f"{text} …") if console.is_terminal else nullcontext():
        yield
    tell(console, f"[green]✓[/] {text} [dim]{time.monotonic() - began:.1f} s[/]")
