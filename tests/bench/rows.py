"""A row of the table: what was measured, beside what, and the goal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

STOLEN = "stolen by the host"
MUCH_STOLEN = 0.05
"""Beyond this share of processor time, a figure is about the host and not about us."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a row's `share` has to reach.

    Attributes:
        words: as the table says it.
        at: the number.
        least: whether `at` is the least that will do, or the most.
    """

    words: str
    at: float
    least: bool = True

    def is_met(self, share: float) -> bool:
        """Whether a share reaches it."""
        return share >= self.at if self.least else share <= self.at


@dataclass(slots=True)
class Row:
    """One result.

    Attributes:
        key: `family.what`, the same in every run.
        title: as the table says it.
        ours: groupflow's figure.
        unit: of `ours` and `peers`.
        share: what the goal is about: a ratio to a peer or a limit, or `ours` itself.
        goal: what `share` has to reach; a row without one only reports.
        beside: what `share` is a ratio to, in words.
        peers: others' figures.
        verdicts: who broke order, overlapped, lost or doubled tasks, and how many.
        details: what else was measured.
        guard: grows with our speed, little with the machine's: a ratio to a limit or a peer.
        is_checked: whether its runs have an order to keep, which was checked.
    """

    key: str
    title: str
    ours: float
    unit: Literal["tasks/s", "msg/s", "ms", "%", "bytes", "calls/s"]
    share: float
    goal: Goal | None = None
    beside: str = ""
    peers: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    details: dict[str, float] = field(default_factory=dict)
    guard: float = 0.0
    is_checked: bool = True

    @property
    def stolen(self) -> float:
        """The share of processor time that a virtual machine's host took meanwhile."""
        return self.details.get(STOLEN, 0.0)

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; ``None`` where there is none."""
        return None if self.goal is None else self.goal.is_met(self.share)
