"""What `groupflow top` draws: one look at the store, fitted to the terminal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from groupflow.cli.safe import plain_text
from groupflow.cli.status import limit_lines, paused_line
from groupflow.operate.busy import Busy
from groupflow.operate.dead import DeadLetter
from groupflow.operate.totals import Totals

SMOOTH = 10.0  # seconds that rates are taken over
_FIXED = 10  # lines beside the three lists: head, totals, titles, foot
_STYLES = {"running": "green", "ready": "cyan", "delayed": "yellow", "parked": "red"}

TopOrder: TypeAlias = Literal["waiting", "seconds"]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the store, at a monotonic moment."""

    at: float
    totals: Totals
    busy: list[Busy]
    dead: list[DeadLetter]

    @property
    def taken(self) -> int:
        """How many tasks have come so far; what is dropped or expired is missing from it."""
        totals = self.totals
        waiting = totals.queued_plain + totals.queued_grouped
        running = totals.running_plain + totals.running_grouped
        return waiting + running + totals.done_total + totals.superseded_total + totals.dead

    def sorted(self, order: TopOrder) -> list[Busy]:
        """The groups and running tasks, what matters most first."""
        if order == "seconds":
            return sorted(self.busy, key=lambda b: (-(b.seconds or 0.0), -b.waiting))
        return sorted(self.busy, key=lambda b: (-b.waiting, -(b.seconds or 0.0)))

    def as_json(self) -> dict[str, Any]:
        """The public shape of ``groupflow top --once --json``."""
        return {
            "status": self.totals.as_json(),
            "groups": self.sorted("waiting"),
            "dead": [letter.as_json() for letter in self.dead],
        }


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

    def failed(self, error: str) -> View:
        """After a look that had no answer."""
        return replace(self, trouble=error)

    def after(self, key: str) -> View:
        match key:
            case "s":
                order: TopOrder = "seconds" if self.order == "waiting" else "waiting"
                return replace(self, order=order)
            case " ":
                return replace(self, is_held=not self.is_held)
        return self

    def rate(self, count: str) -> str:
        """How much a total rises a second, as text."""
        if not self.before or self.now.at <= self.before[0].at:
            return "-"
        first = self.before[0]
        now, then = _total(self.now, count), _total(first, count)
        return f"{max(0.0, (now - then) / (self.now.at - first.at)):,.1f}/s"


def _total(look: Look, count: str) -> int:
    totals = {
        "in": look.taken,
        "done": look.totals.done_total,
        "failed": look.totals.buried_total,
    }
    return totals[count]


def draw(view: View, width: int, height: int) -> RenderableType:
    """The screen, in `height` lines of `width` columns at most."""
    away, held_back = view.now.totals.away, view.now.totals.held_back
    paused = paused_line(view.now.totals)
    limits = "; ".join(limit_lines(view.now.totals))
    lines = [view.trouble, away, held_back, paused, limits]
    rows = max(3, height - _FIXED - sum(1 for each in lines if each))
    daemons = view.now.totals.daemons
    for_daemons = min(max(1, len(daemons)), max(1, rows // 4))
    for_dead = min(max(1, len(view.now.dead)), max(1, rows // 4))
    for_groups = max(1, rows - for_daemons - for_dead)
    parts: list[RenderableType] = [_head(view, width)]
    if paused:
        parts.append(_line(paused, "bold red", width))
    if limits:
        parts.append(_line(limits, "bold", width))
    if view.trouble:
        parts.append(_line(f"held: {view.trouble}", "bold red", width))
    if away:
        parts.append(_line("; ".join(map(str, away)), "bold red", width))
    if held_back:
        which = ", ".join(str(each.partition) for each in held_back)
        words = f"nothing is given out in partition {which}: its Redis may have lost claims"
        parts.append(_line(words, "bold red", width))
    parts += [
        *_totals(view, width),
        Text(),
        _daemons(view, for_daemons, width),
        Text(),
        _groups(view, for_groups, width),
        Text(),
        _dead(view, for_dead, width),
    ]
    return Group(*parts)


def _line(text: str, style: str, width: int) -> Text:
    line = Text(plain_text(text), style=style, no_wrap=True, overflow="ellipsis")
    line.truncate(width)
    return line


def _head(view: View, width: int) -> Text:
    moment = datetime.now(UTC).strftime("%H:%M:%S UTC")
    hint = "" if view.is_once else "  q quit · s sort · space hold"
    held = "  HELD" if view.is_held else ""
    return _line(f"groupflow top  {moment}{held}{hint}", "bold", width)


def _totals(view: View, width: int) -> list[Text]:
    totals = view.now.totals
    return [
        _line(
            f"in {view.rate('in')}  done {view.rate('done')}  failed {view.rate('failed')}"
            f"   total done {totals.done_total:,}, failed {totals.buried_total:,}, "
            f"dead {totals.dead:,}",
            "",
            width,
        ),
        _line(
            f"plain {totals.queued_plain:,} queued, {totals.running_plain:,} running"
            f"   grouped {totals.queued_grouped - totals.asleep:,} queued, "
            f"{totals.running_grouped:,} running"
            f"   oldest wait {max(totals.waited_plain, totals.waited_grouped):,.1f} s",
            "",
            width,
        ),
        _line(
            f"groups {totals.groups:,}: {totals.running_grouped:,} running, "
            f"{totals.ready:,} ready, {totals.delayed:,} delayed, {totals.parked:,} parked, "
            f"{totals.paused:,} paused",
            "",
            width,
        ),
    ]


@dataclass(slots=True)
class _List:
    """A titled table of so many rows, each cut to the width."""

    titles: tuple[str, ...]
    right: frozenset[int]
    width: int
    rows: list[tuple[Text, ...]] = field(default_factory=list)

    def add(self, *cells: str, style: str = "") -> None:
        """A row; its text is taken as it is, and can't drive the terminal."""
        self.rows.append(tuple(Text(plain_text(cell), style=style) for cell in cells))

    def table(self, most: int, nothing: str) -> Table:
        """The table, with a word on what it leaves out."""
        table = Table(box=None, padding=(0, 2, 0, 0), width=self.width, header_style="bold reverse")
        left_out = len(self.rows) - most
        for number, title in enumerate(self.titles):
            is_last = number == len(self.titles) - 1
            more = f" (+{left_out})" if left_out > 0 and number == 0 else ""
            table.add_column(
                title + more,
                justify="right" if number in self.right else "left",
                no_wrap=True,
                overflow="ellipsis",
                ratio=1 if is_last else None,
                max_width=None if is_last else max(8, self.width // 3),
            )
        for row in self.rows[:most]:
            table.add_row(*row)
        if not self.rows:
            table.add_row(Text(nothing, style="dim"))
        return table


def _daemons(view: View, most: int, width: int) -> Table:
    daemons = _List(("daemon", "workers", "heartbeat", "pid", "host"), frozenset({1, 2, 3}), width)
    for each in view.now.totals.daemons:
        late = "red" if each.heartbeat_age > 5 else ""  # noqa: PLR2004  seconds
        age = f"{each.heartbeat_age:.1f} s"
        daemons.add(each.name, str(each.workers), age, str(each.pid), each.host, style=late)
    return daemons.table(most, "none is running")


def _groups(view: View, most: int, width: int) -> Table:
    titles = ("group", "waiting", "runs for", "state", "task")
    groups = _List(titles, frozenset({1, 2}), width)
    for each in view.now.sorted(view.order):
        runs = "" if each.seconds is None else f"{each.seconds:.1f} s"
        waiting = f"{each.waiting:,}" if each.group is not None else ""
        where = f"{each.task} on {each.daemon}, {each.worker}" if each.task else ""
        style = _STYLES.get(each.state, "")
        groups.add(each.group or "(plain)", waiting, runs, each.state, where, style=style)
    return groups.table(most, "nothing runs, nothing is in line")


def _dead(view: View, most: int, width: int) -> Table:
    letters = _List(("died", "type", "group", "reason"), frozenset(), width)
    for letter in view.now.dead:
        moment = datetime.fromtimestamp(letter.died_at, UTC).strftime("%m-%d %H:%M:%S")
        reason = letter.reason.partition("\n")[0]
        letters.add(moment, letter.type or "-", letter.group or "-", reason, style="red")
    return letters.table(most, "no dead letters")
