"""A row of the table: what was measured, beside what, round by round, and the goal."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Literal

OURS = "groupflow"
Unit = Literal["tasks/s", "msg/s", "ms", "%", "bytes", "calls/s", "µs", "rows/s"]
MUCH_STOLEN = 0.05
"""Beyond this share of processor time that the host took, a round is marked as disturbed."""
MINUTE = 60.0  # seconds within which all turns of a round have to come


@dataclass(frozen=True, slots=True)
class Goal:
    """What a row has to reach: its ratio where it has one, else our own figure.

    Attributes:
        words: as the table says it.
        at: the number.
        least: whether `at` is the least that will do, or the most.
        is_of_ratio: whether it is about the ratio, or about our figure alone.
    """

    words: str
    at: float
    least: bool = True
    is_of_ratio: bool = True

    def is_met(self, figure: float) -> bool:
        """Whether a figure reaches it."""
        return figure >= self.at if self.least else figure <= self.at


@dataclass(frozen=True, slots=True)
class Span:
    """The median of some rounds, and between what they lay."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: list[float]) -> Span:
        """Of one figure at least."""
        return cls(median(figures), min(figures), max(figures))


@dataclass(slots=True)
class Round:
    """One turn of each, within a minute or so.

    Attributes:
        figures: who → figure; ours under `OURS`.
        at: when it began, UTC.
        seconds: how long it took.
        stolen: the share of processor time that a virtual machine's host took meanwhile.
    """

    figures: dict[str, float]
    at: str = ""
    seconds: float = 0.0
    stolen: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether it is about the host, or wasn't of one minute: marked, and never left out."""
        return self.stolen > MUCH_STOLEN or self.seconds > MINUTE


@dataclass(slots=True)
class Row:
    """One result.

    Attributes:
        key: `family.what`, the same in every run.
        title: as the table says it.
        unit: of all figures.
        goal: what has to be reached; a row without one only reports.
        beside: to whose figure ours is set in ratio, round by round; empty: to nobody's.
        off: what is not as settings have it by default, or as users run it.
        rounds: what was measured; none is ever left out.
        once: figures of peers that had one turn only, and no ratio.
        verdicts: who broke order, overlapped, lost or doubled tasks, and how many.
        is_checked: whether its runs have an order to keep, which was checked.
        commit: of what code it is.
    """

    key: str
    title: str
    unit: Unit
    goal: Goal | None = None
    beside: str = ""
    off: str = ""
    rounds: list[Round] = field(default_factory=list)
    once: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    is_checked: bool = True
    commit: str = ""

    def of(self, who: str) -> list[float]:
        """Somebody's figures, of the rounds in which there is one."""
        return [each.figures[who] for each in self.rounds if who in each.figures]

    @property
    def ours(self) -> Span:
        """Our figure."""
        return Span.of(self.of(OURS))

    @property
    def peers(self) -> dict[str, float]:
        """The medians of all others that had a turn in each round."""
        names = dict.fromkeys(who for each in self.rounds for who in each.figures if who != OURS)
        return {who: median(self.of(who)) for who in names}

    @property
    def ratio(self) -> Span | None:
        """Ours to `beside`, of the rounds in which both have a figure; ``None`` if none has."""
        both = [one.figures for one in self.rounds if {OURS, self.beside} <= one.figures.keys()]
        ratios = [each[OURS] / each[self.beside] for each in both if each[self.beside]]
        return Span.of(ratios) if ratios else None

    @property
    def disturbed(self) -> int:
        """How many of its rounds were."""
        return sum(each.is_disturbed for each in self.rounds)

    @property
    def judged(self) -> Span | None:
        """What the goal is about, and what a later run is compared by."""
        of_ratio = self.goal.is_of_ratio if self.goal else bool(self.beside)
        return self.ratio if of_ratio and self.beside else self.ours

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; ``None`` where there is none."""
        if self.goal is None:
            return None
        judged = self.judged
        return judged is not None and self.goal.is_met(judged.median)

    @property
    def more_is_better(self) -> bool:
        """Whether a larger figure is a better one."""
        return self.unit in ("tasks/s", "msg/s", "rows/s")
