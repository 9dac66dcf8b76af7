"""What `groupflow top` draws: one look at the store, fitted to the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from groupflow.cli.status import (
    dead_words,
    groups_line,
    limit_lines,
    outbox_line,
    paused_line,
    pool_lines,
    unrun_line,
)
from groupflow.core.masking import plain_text
from groupflow.core.progress import Progress
from groupflow.operate.busy import Busy
from groupflow.operate.dead import DeadLetter
from groupflow.operate.reasons import duration
from groupflow.operate.totals import Totals

SMOOTH = 10.0  # seconds that rates are taken over
_FIXED = 10  # lines beside the three lists: head, totals, titles, foot
_BAR = 8  # characters of a full bar
_STYLES = {"running": "green", "ready": "cyan", "delayed": "yellow", "parked": "red"}

TopOrder: TypeAlias = Literal["waiting", "seconds"]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the store, at a monotonic moment."""

    at: float
    totals: Totals
    busy: list[Busy]
    dead: list[DeadLetter]

    def sorted(self, order: TopOrder) -> list[Busy]:
        """The groups and running tasks, what matters most first."""
        if order == "seconds":
            return sorted(self.busy, key=lambda b: (-(b.seconds or 0.0), -b.waiting))
        return sorted(self.busy, key=lambda b: (-b.waiting, -(b.seconds or 0.0)))


@dataclass(frozen=True, slots=True)
class View:
    """What is on the screen: the latest look, those before it, and what the person chose."""

    now: Look
    before: tuple[Look, ...] = ()
    order: TopOrder = "waiting"
    is_held: bool = False
    is_once: bool = False
    trouble: str = ""

    def seen(self, look: Look) -> View:
        """After another look."""
        kept = tuple(b for b in (*self.before, self.now) if look.at - b.at <= SMOOTH)
        return replace(self, now=look, before=kept, trouble="")

    def after(self, key: str) -> View:
        """After a key was pressed."""
        if key == "s":
            return replace(self, order="seconds" if self.order == "waiting" else "waiting")
        return replace(self, is_held=not self.is_held) if key == " " else self

    def rate(self, total: str) -> str:
        """How much one of the totals rises a second, as text."""
        if not self.before or self.now.at <= self.before[0].at:
            return "-"
        first = self.before[0]
        risen = getattr(self.now.totals, total) - getattr(first.totals, total)
        return f"{max(0.0, risen / (self.now.at - first.at)):,.1f}/s"


def draw(view: View, width: int, height: int) -> RenderableType:
    """The screen, in `height` lines of `width` columns at most."""
    totals = view.now.totals
    limits, pools = ("; ".join(lines(totals)) for lines in (limit_lines, pool_lines))
    stands = ", ".join(str(each.partition) for each in totals.held_back)
    lost = f"nothing is given out in partition {stands}: its Redis may have lost claims"
    notes = (
        (paused_line(totals), "bold red"),
        (unrun_line(totals), "bold red"),
        (limits, "bold"),
        (f"held: {view.trouble}" if view.trouble else "", "bold red"),
        ("; ".join(map(str, totals.away)), "bold red"),
        (lost if stands else "", "bold red"),
        (outbox_line(totals), "bold red"),
        (pools, "bold"),
    )
    shown = [_line(text, style, width) for text, style in notes if text]
    rows = max(3, height - _FIXED - len(shown))
    for_daemons = min(max(1, len(totals.daemons)), max(1, rows // 4))
    for_dead = min(max(1, len(view.now.dead)), max(1, rows // 4))
    for_groups = max(1, rows - for_daemons - for_dead)
    return Group(
        _head(view, width),
        *shown,
        *(_line(text, "", width) for text in _totals(view)),
        Text(),
        _daemons(view, for_daemons, width),
        Text(),
        _groups(view, for_groups, width),
        Text(),
        _dead(view, for_dead, width),
    )


def _line(text: str, style: str, width: int) -> Text:
    line = Text(plain_text(text), style=style, no_wrap=True, overflow="ellipsis")
    line.truncate(width)
    return line


def _head(view: View, width: int) -> Text:
    moment = datetime.now(UTC).strftime("%H:%M:%S UTC")
    hint = "" if view.is_once else "  q quit · s sort · space hold"
    held = "  HELD" if view.is_held else ""
    return _line(f"groupflow top  {moment}{held}{hint}", "bold", width)


def _totals(view: View) -> list[str]:
    totals = view.now.totals
    rates = (
        f"in {view.rate('taken_total')}"
        f"  done {view.rate('done_total')}"
        f"  dead {view.rate('buried_total')}"
    )
    return [
        f"{rates}   total done {totals.done_total:,}, {dead_words(totals)}",
        f"plain {totals.queued_plain:,} queued, {totals.running_plain:,} running"
        f"   grouped {totals.queued_grouped - totals.asleep:,} queued, "
        f"{totals.running_grouped:,} running"
        f"   oldest wait {duration(max(totals.waited_plain, totals.waited_grouped))}",
        groups_line(totals),
    ]


def _table(
    titles: Sequence[str],
    right: Iterable[int],
    rows: Sequence[tuple[str, Sequence[str]]],
    size: tuple[int, int],
    nothing: str,
) -> Table:
    """A table of so many lines and columns, with a word on what it leaves out.

    Each row has a style and texts, which are taken as they are, and can't drive the terminal.
    """
    most, width = size
    table = Table(box=None, padding=(0, 2, 0, 0), width=width, header_style="bold reverse")
    more = f" (+{len(rows) - most})" if len(rows) > most else ""
    for number, title in enumerate(titles):
        is_last = number == len(titles) - 1
        table.add_column(
            title if number else title + more,
            justify="right" if number in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if is_last else None,
            max_width=None if is_last else max(8, width // 3),
        )
    for style, cells in rows[:most]:
        table.add_row(*(Text(plain_text(cell), style=style) for cell in cells))
    if not rows:
        table.add_row(Text(nothing, style="dim"))
    return table


def _daemons(view: View, most: int, width: int) -> Table:
    rows = [
        (
            "red" if each.late or each.heartbeat_age > 5 else "",  # noqa: PLR2004  seconds
            (each.name, str(each.workers), duration(each.heartbeat_age), str(each.pid), where),
        )
        for each in view.now.totals.daemons
        for where in [each.host + (", its lease has run out" if each.late else "")]
    ]
    titles = ("daemon", "workers", "heartbeat", "pid", "host")
    return _table(titles, (1, 2, 3), rows, (most, width), "none is running")


def _groups(view: View, most: int, width: int) -> Table:
    rows, is_told = [], any(each.progress for each in view.now.busy)
    for each in view.now.sorted(view.order):
        runs = "" if each.seconds is None else duration(each.seconds)
        waiting = f"{each.waiting:,}" if each.group is not None else ""
        where = f"{each.task} on {each.daemon}, {each.worker}" if each.task else ""
        bar = [_bar(each.progress)] if is_told else []
        cells = (each.group or "(plain)", waiting, runs, each.state, *bar, where)
        rows.append((_STYLES.get(each.state, ""), cells))
    told = ["progress"] if is_told else []
    titles = ("group", "waiting", "runs for", "state", *told, "task")
    return _table(titles, (1, 2), rows, (most, width), "nothing runs, nothing is in line")


def _bar(progress: Progress | None) -> str:
    """How far a task has got: a bar, or figures where the whole isn't known."""
    if progress is None or progress.percent is None:
        return progress.figures() if progress else ""
    full = min(_BAR, _BAR * progress.percent // 100)
    return f"{'█' * full}{'░' * (_BAR - full)} {progress.percent} %"


def _dead(view: View, most: int, width: int) -> Table:
    rows = []
    for letter in view.now.dead:
        moment = datetime.fromtimestamp(letter.died_at, UTC).strftime("%m-%d %H:%M:%S")
        reason = letter.reason.partition("\n")[0]
        rows.append(("red", (moment, letter.type or "-", letter.group or "-", reason)))
    return _table(("died", "type", "group", "reason"), (), rows, (most, width), "no dead letters")
