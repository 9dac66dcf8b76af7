"""Rounds: ours and its peers take turns, so that both have the same minute."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic

from tests.verification.bench.bench import Bench
from tests.verification.bench.machine import Stolen
from tests.verification.bench.peers.running import PeerFailed
from tests.verification.bench.rows import OURS, Round, Row


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn found.

    Attributes:
        figures: row key → figure.
        details: what else was measured, the same for all rows.
        beside: row key → who → figure that follows from this turn, such as an ideal.
    """

    figures: Mapping[str, float]
    details: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


Side = Callable[[], Awaitable[Turn]]
"""One turn of one side."""


class Stopwatch:
    """What a round has to say of its time."""

    def __init__(self) -> None:
        self.at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        self.load = os.getloadavg()[0]
        self._began, self._stolen = monotonic(), Stolen()

    def round(self, figures: dict[str, float], first: str = OURS) -> Round:
        """A round that began when this did, and ends now."""
        return Round(
            figures, {}, first, self.at, monotonic() - self._began, self.load, self._stolen.share()
        )


async def take_turns(
    bench: Bench, rows: Sequence[Row], sides: Mapping[str, Side], *, rounds: int | None = None
) -> None:
    """Add rounds to some rows: in each, every side has one turn; who is first goes round.

    A peer that can't be measured is a problem of the run, and has no figure in that round.

    Args:
        bench: says how many rounds there are, and hears of problems.
        rows: what the turns measure.
        sides: who → one turn of theirs.
        rounds: how many, in place of what `bench` says.
    """
    names = list(sides)
    for number in range(rounds or bench.rounds):
        order = names if number % 2 == 0 else names[::-1]
        watch, turns = Stopwatch(), dict[str, Turn]()
        for who in order:
            try:
                turns[who] = await sides[who]()
            except PeerFailed as error:
                bench.problems.append(f"{rows[0].key}: {who}: {error}")
        for row in rows:
            row.rounds.append(watch.round(_figures(row.key, turns), order[0]))
            if OURS in turns:
                row.rounds[-1].details.update(turns[OURS].details)


def _figures(key: str, turns: Mapping[str, Turn]) -> dict[str, float]:
    found: dict[str, float] = {}
    for who, turn in turns.items():
        if key in turn.figures:
            found[who] = turn.figures[key]
        for other, figure in turn.beside.get(key, {}).items():
            # Several turns may each bound what can be reached: the lowest bound holds.
            found[other] = min(figure, found.get(other, figure))
    return found
