"""What the demo shows while it runs: a live picture on a terminal, a line a second elsewhere."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from groupflow.demo.progress import Snapshot

_LINE_EVERY = 1.0  # seconds between two lines where there is no terminal


class Screen(ABC):
    """Shows snapshots, between entering it and leaving it."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @abstractmethod
    def show(self, snapshot: Snapshot) -> None:
        """Show the latest state; called a few times a second."""

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027  lines need no clean-up
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the last state on the screen."""


class LiveScreen(Screen):
    """A picture that stays in place: a bar per tenant, the daemons, the speed."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        # We redraw when there is news: no refresh thread of rich's needed.
        self._live = Live(console=console, auto_refresh=False)

    def show(self, snapshot: Snapshot) -> None:
        """Redraw."""
        self._live.update(picture(snapshot), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop redrawing, with the last picture left standing."""
        self._live.stop()


class LineScreen(Screen):
    """A line about once a second, and one when all is handled; for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._last = 0.0
        self._ended = False

    def show(self, snapshot: Snapshot) -> None:
        """Print a line if the last one is long enough ago."""
        now = time.monotonic()
        if self._ended or (now - self._last < _LINE_EVERY and not snapshot.complete):
            return
        self._last = now
        self._ended = snapshot.complete
        self.console.print(line(snapshot), highlight=False, soft_wrap=True)


def screen_for(console: Console) -> Screen:
    """The live picture on a terminal, lines otherwise."""
    return LiveScreen(console) if console.is_terminal else LineScreen(console)


@contextmanager
def step(console: Console, text: str) -> Iterator[None]:
    """Show that something is being done, and how long it took once it is."""
    began = time.monotonic()
    if console.is_terminal:
        with console.status(f"{text} …"):
            yield
    else:
        yield
    seconds = time.monotonic() - began
    console.print(f"[green]✓[/] {text} [dim]{seconds:.1f} s[/]", highlight=False, soft_wrap=True)


def line(snapshot: Snapshot) -> str:
    """The state as one line of text."""
    if not snapshot.handled:
        return f"  {_starting(snapshot)}"
    daemons = ", ".join(f"{name} {handled:,}" for name, handled in snapshot.daemons.items())
    failed = f"   {snapshot.failed:,} FAILED" if snapshot.failed else ""
    return (
        f"  {snapshot.elapsed:5.1f} s   {snapshot.handled:,} of {snapshot.total:,} imported"
        f"   {snapshot.rate:,.0f}/s   {snapshot.groups_running} groups at once"
        f"   ({daemons}){failed}"
    )


def picture(snapshot: Snapshot) -> RenderableType:
    """The state as a picture for a terminal."""
    return Padding(Group(_tenants(snapshot), Text(), *_speed(snapshot)), (1, 0, 1, 2))


def _tenants(snapshot: Snapshot) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    for tenant in snapshot.tenants:
        kind = f"{tenant.groups} groups" if tenant.groups else "plain"
        ended = tenant.handled == tenant.total
        table.add_row(
            f"[bold]{tenant.code}[/]",
            tenant.name,
            f"[dim]{kind}[/]",
            ProgressBar(total=tenant.total, completed=tenant.handled),
            f"{'[green]' if ended else ''}{tenant.handled}/{tenant.total}",
        )
    return table


def _speed(snapshot: Snapshot) -> Iterator[Text]:
    daemons = "   ".join(
        f"[cyan]{name}[/] {handled:,} tasks" for name, handled in snapshot.daemons.items()
    )
    yield Text.from_markup(daemons)
    if not snapshot.handled:
        yield Text.from_markup(f"[dim]{_starting(snapshot)}[/]")
        return
    state = f"{snapshot.rate:,.0f} tasks/s   {snapshot.groups_running} groups running at once"
    if snapshot.complete:
        state = "all imported"
    yield Text.from_markup(
        f"[bold]{snapshot.handled:,}[/] of {snapshot.total:,} after {snapshot.elapsed:.1f} s"
        f"   [bold]{state}[/]"
    )
    if snapshot.failed:
        yield Text.from_markup(f"[bold red]{snapshot.failed:,} failed[/]")


def _starting(snapshot: Snapshot) -> str:
    return f"published {snapshot.published:,} of {snapshot.total:,}, the daemons are starting"
