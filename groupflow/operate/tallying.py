"""What handlers did in a day, by type: in one hash, so any page shows the whole cluster.

Each daemon counts for itself, and every ten seconds adds its new counts to the current interval of
five minutes, by Redis's clock. It costs the tasks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from time import monotonic
from typing import Any

import orjson

from groupflow.core.measures import HANDLING, OTHER, TypeMeasures, Types
from groupflow.operate.replies import named
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds

EVERY = 10.0  # seconds between two tallies of a daemon
INTERVAL = 300.0  # seconds that are counted as one
KEPT = 289  # intervals: a day of them, and the current one
_COUNTED = ("complete", "retry", "bury")  # in front of the buckets of durations


@dataclass(frozen=True, slots=True)
class TypeRow:
    """What became of the attempts at one type's tasks."""

    type: str
    done: int
    failed: int  # attempts that are tried again
    dead: int
    rate: float  # tasks done a second
    duration_p50: float | None  # seconds that half of the attempts took at most
    duration_p95: float | None


@dataclass(frozen=True, slots=True)
class TypeFigures:
    """All types over some hours."""

    at: float  # Unix seconds by Redis's clock
    hours: float  # that the figures cover: those asked for, or fewer if less is known
    utilisation: float | None
    """The share of the workers' time that handlers took; None if no daemon reported any."""
    types: list[TypeRow] = field(default_factory=list)  # the most frequent first


class Tallier:
    """Counts what a daemon's handlers did since the last `take`."""

    def __init__(self, types: Types, workers: int) -> None:
        """Takes the daemon's own counts, and how many workers it has."""
        self._types = types
        self._workers = workers
        self._known: dict[str, list[int]] = {}
        self._busy = 0.0
        self._asked = monotonic()

    def take(self) -> bytes:
        """The counts since the last call, as `tally.lua` wants them."""
        measured = {**self._types.named, OTHER: self._types.other}
        counts = {name: _counts(each) for name, each in measured.items()}
        told = {name: _since(now, self._known.get(name, ())) for name, now in counts.items()}
        busy, asked = sum(each.handling.sum for each in measured.values()), monotonic()
        packed = orjson.dumps(
            {
                "busy": busy - self._busy,
                "capacity": self._workers * (asked - self._asked),
                "types": {name: each for name, each in told.items() if any(each)},
            }
        )
        self._known, self._busy, self._asked = counts, busy, asked
        return packed


def _counts(measures: TypeMeasures) -> list[int]:
    return [*(measures.settled[each] for each in _COUNTED), *measures.handling.counts]


def _since(now: Sequence[int], before: Sequence[int]) -> list[int]:
    return [a - b for a, b in zip_longest(now, before, fillvalue=0)]


async def tally(client: StoreClient, tallier: Tallier) -> float:
    """Add one daemon's counts; if no answer comes, they may be lost.

    Returns:
        The seconds until the next one.
    """
    await client.run(OperatorVerb.TALLY, microseconds(INTERVAL), KEPT, tallier.take())
    return EVERY


async def read_types(client: StoreClient, hours: float) -> TypeFigures:
    """What handlers did within so many hours, in whole intervals.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    reply = named(await client.run(OperatorVerb.TALLIES), "now")
    at = float(reply["now"])
    kept = [orjson.loads(each) for each in reply["tallies"]]
    first = int((at - hours * 3600) // INTERVAL) + 1
    return _figures(at, hours, [each for each in kept if each["number"] >= first])


def _figures(at: float, hours: float, kept: Sequence[Mapping[str, Any]]) -> TypeFigures:
    if not kept:
        return TypeFigures(at, 0.0, None)
    begun = min(each["number"] for each in kept) * INTERVAL
    span = max(1.0, min(hours * 3600, at - begun))
    sums: dict[str, list[int]] = {}
    for each in kept:
        for name, counts in each["types"].items():
            before = sums.get(name, [])
            sums[name] = [int(a + b) for a, b in zip_longest(before, counts, fillvalue=0)]
    capacity = sum(each["capacity"] for each in kept)
    share = min(1.0, sum(each["busy"] for each in kept) / capacity) if capacity else None
    rows = [_row(name, counts, span) for name, counts in sums.items()]
    rows.sort(key=lambda row: (-row.done, row.type))
    return TypeFigures(at, round(span / 3600, 2), share, rows)


def _row(name: str, counts: Sequence[int], span: float) -> TypeRow:
    done, failed, dead, *buckets = counts
    return TypeRow(
        type=name,
        done=done,
        failed=failed,
        dead=dead,
        rate=round(done / span, 4),
        duration_p50=quantile(buckets, 0.5),
        duration_p95=quantile(buckets, 0.95),
    )


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The duration below which that share of the counted lies, in seconds; ``None`` without any.

    Exact to its bucket; within it, as if evenly spread. A value above all buckets is given as the
    highest bound.
    """
    wanted = share * sum(counts)
    if wanted == 0:
        return None
    passed, low = 0.0, 0.0
    for count, high in zip(counts, HANDLING, strict=False):
        if count and passed + count >= wanted:
            return float(f"{low + (high - low) * (wanted - passed) / count:.3g}")
        passed, low = passed + count, high
    return float(HANDLING[-1])
