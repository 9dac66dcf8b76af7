"""Statistics: samples of the totals over an hour and a day, what handlers did in a day, by type.

Each lies in one hash, so that any page shows the whole cluster. The totals are the store's own.
Daemons count latencies (from the enqueue to the accepted settle) and what handlers did for
themselves, and every ten seconds the store adds up what is new; it costs the tasks nothing.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from statistics import fmean
from time import monotonic
from typing import Any, TypeAlias

import orjson

from groupflow.core.measures import HANDLING, OTHER, Types
from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.settlements import Complete, Settlement

INTERVAL = 10.0  # seconds between two samples
MINUTE = 60.0  # seconds of which rates are the mean
KEPT = 361  # samples: an hour of them, and the one that the first rate is counted from
THINNED = 24  # intervals of which one sample is kept for a day, in a second ring of so many
WALKED = 1000  # groups that a look for the longest lanes walks on
LONGEST = 20  # groups that it notes
TYPES_EVERY = 10.0  # seconds between two times that a daemon adds its counts of types
TYPES_INTERVAL = 300.0  # seconds of types that are counted as one
TYPES_KEPT = 289  # intervals of types: a day of them, and the current one
_COUNTED = ("complete", "retry", "bury")  # in front of the buckets of durations
_RATES = ("taken_in", "done", "buried", "crashed")  # of a row's totals, behind its time
_PER_DECADE = 5
_COUNTS = 12  # columns of a sample in front of its latencies
BOUNDS = tuple(10 ** (step / _PER_DECADE - 3) for step in range(8 * _PER_DECADE + 1))
"""Seconds, from a millisecond to a day and more: the buckets' upper bounds; the last has none."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals at one instant, and the rates and latencies since the sample before."""

    at: float  # Unix seconds by Redis's clock
    taken_in: float | None  # tasks a second that came in; None without a sample before
    done: float | None  # tasks a second that were done
    buried: float | None  # dead letters a second
    crashed: float | None  # claims a second that ended without a settle
    queued: int  # tasks that waited, without sleeping shards of scans
    running: int  # tasks that ran
    ready: int  # groups that could be claimed
    delayed: int  # groups whose head wasn't due
    dead: int
    # seconds from its enqueue that half of the done tasks had taken at most; None if none was
    # done
    latency_p50: float | None
    latency_p99: float | None  # the same for 99 of 100
    measured: int  # how many tasks were measured


class Latencies:
    """Counts how long tasks took in all, in buckets, until the next sample takes the counts."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._ahead = 0.0

    def observe(self, settlements: Sequence[Settlement]) -> None:
        """Count accepted settlements; only a completed task has a latency."""
        counts, now = self._counts, time.time() + self._ahead
        for settlement in settlements:
            if isinstance(settlement, Complete):
                counts[bisect_left(BOUNDS, now - settlement.claim.task.enqueued_at)] += 1

    def set_clock(self, ahead: float) -> None:
        """How many seconds Redis's clock, by which tasks are enqueued, is ahead of this one."""
        self._ahead = ahead

    def take(self) -> list[int]:
        """The counts so far; they begin at 0 again."""
        counts, self._counts = self._counts, [0] * len(self._counts)
        return counts


async def take_sample(client: StoreClient, latencies: Latencies) -> bool:
    """Keep the totals of this interval, unless another daemon has, and add our latencies.

    If no answer comes, the latencies are not sent again: they may have arrived, and a gap misleads
    less than a task counted twice.

    Returns:
        Whether the interval was new.
    """
    counts = orjson.dumps(latencies.take())
    before = time.time()
    interval = microseconds(INTERVAL)
    now, is_new = await client.run(OperatorVerb.SAMPLE, interval, KEPT, counts, THINNED)
    latencies.set_clock(seconds(now) - (before + time.time()) / 2)
    return bool(is_new)


async def sample(client: StoreClient, latencies: Latencies) -> float:
    """Take a sample; the daemon that begins an interval also looks for the longest lanes.

    Returns the seconds until the next one.
    """
    if await take_sample(client, latencies):
        await find_longest(client)
    return INTERVAL


async def find_longest(client: StoreClient) -> int:
    """Walk on through the groups to find the longest lanes.

    Returns:
        How many were looked at.
    """
    return int(await client.run(OperatorVerb.FIND_LONGEST, WALKED, LONGEST))


SampleRow: TypeAlias = tuple[int, *tuple[Any, ...]]
"""A sample as it is kept: when (µs), the totals, and the counts of latencies."""


async def read_samples(namespace: Namespace, *, of_day: bool = False) -> list[Sample]:
    """The last hour, oldest first, each sample with its rates since the one before.

    Of a day it has fewer: one of `THINNED` intervals, and the newest of all.

    Raises:
        StoreUnavailable: no partition answers.
    """
    parts = (await namespace.ask_all(partial(_rows_in, of_day=of_day))).all
    rows = together([rows for rows, _ in parts], INTERVAL * (THINNED if of_day else 1))
    newest = together([newest for _, newest in parts])
    rows += [row for row in newest if of_day and rows and row[0] > rows[-1][0]]
    return [_sample(row, rows[n - 1] if n else None) for n, row in enumerate(rows)]


async def _rows_in(client: StoreClient, *, of_day: bool) -> tuple[list[SampleRow], list[SampleRow]]:
    """A partition's samples of the last hour, or day, oldest first; and its newest one."""
    now, packed = await client.run(OperatorVerb.STATISTICS, "samples")
    rings: dict[bool, list[SampleRow]] = {False: [], True: []}
    for found in map(orjson.loads, packed):
        is_day = isinstance(found, dict)  # the longest lanes lie there as well
        row = found.get("day") if is_day else found
        oldest = now - microseconds(KEPT * INTERVAL * (THINNED if is_day else 1))
        if row and int(row[0]) > oldest:
            rings[is_day].append((int(row[0]), *row[1:]))
    return sorted(rings[of_day]), sorted(rings[False])[-1:]


def together(parts: Sequence[Sequence[SampleRow]], interval: float = INTERVAL) -> list[SampleRow]:
    """One row for each interval, with the sums of all partitions.

    If a partition has no row, no daemon could write there: its totals then were about the same as
    before, and nothing was measured.
    """
    if len(parts) == 1:
        return [*parts[0]]
    length = microseconds(interval)
    kept = [{row[0] // length: row for row in rows} for rows in parts if rows]
    latest = [rows[0] for rows in parts if rows]
    found: list[SampleRow] = []
    for number in sorted(set().union(*kept)):
        now = [rows[number] for rows in kept if number in rows]
        latest = [rows.get(number, before) for rows, before in zip(kept, latest, strict=True)]
        totals = [sum(row[n] for row in latest) for n in range(1, _COUNTS)]
        at, counts = max(row[0] for row in now), _added([row[_COUNTS] for row in now])
        found.append((at, *totals, counts))
    return found


def _added(counts: Iterable[Any]) -> Any:
    """The sums of lists of counts, place by place; shorter lists add nothing."""
    return [int(sum(each)) for each in zip_longest(*counts, fillvalue=0)]


@dataclass(frozen=True, slots=True)
class Rates:
    """Tasks a second over the last minute."""

    taken_in: float
    done: float
    buried: float


def rates_of(samples: Sequence[Sample], now: float) -> Rates | None:
    """The rates over the minute before `now` (Unix seconds by Redis's clock).

    ``None`` if no daemon has kept samples lately: none runs, or the first one has just begun.
    """
    lately = [each for each in samples if now - each.at < MINUTE and each.taken_in is not None]
    if not lately:
        return None
    names = ("taken_in", "done", "buried")
    means = {name: fmean(getattr(each, name) or 0.0 for each in lately) for name in names}
    return Rates(**{name: round(mean, 3) for name, mean in means.items()})


def _sample(row: Sequence[Any], before: Sequence[Any] | None) -> Sample:
    at, *_, ready, held, dead, counts = row
    rates: dict[str, Any] = dict.fromkeys(_RATES)
    if before is not None:
        span = seconds(at - before[0])
        # Totals fall only if an operator emptied the store: that is no rate.
        grown = [
            max(0, total - earlier) for total, earlier in zip(row[1:5], before[1:5], strict=True)
        ]
        rates = {name: round(each / span, 3) for name, each in zip(_RATES, grown, strict=True)}
    return Sample(
        seconds(at),
        **rates,
        queued=row[5] + row[6],
        running=row[7] + row[8],
        ready=ready,
        delayed=held,
        dead=dead,
        latency_p50=quantile(counts, 0.5),
        latency_p99=quantile(counts, 0.99),
        measured=sum(counts),
    )


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


class TypeCounter:
    """Counts what a daemon's handlers did since the last `take`."""

    def __init__(self, types: Types, workers: int) -> None:
        """Takes the daemon's own counts, and how many workers it has."""
        self._types = types
        self._workers = workers
        self._known: dict[str, list[int]] = {}
        self._busy = 0.0
        self._asked = monotonic()

    def take(self) -> bytes:
        """The counts since the last call, as `count_types.lua` wants them."""
        measured = {**self._types.named, OTHER: self._types.other}
        counts = {
            name: [*(each.settled[what] for what in _COUNTED), *each.handling.counts]
            for name, each in measured.items()
        }
        new = {name: _since(now, self._known.get(name, ())) for name, now in counts.items()}
        types = {name: each for name, each in new.items() if any(each)}
        busy, asked = sum(each.handling.sum for each in measured.values()), monotonic()
        capacity = self._workers * (asked - self._asked)
        told = {"busy": busy - self._busy, "capacity": capacity, "types": types}
        self._known, self._busy, self._asked = counts, busy, asked
        return orjson.dumps(told)


def _since(now: Sequence[int], before: Sequence[int]) -> list[int]:
    return [a - b for a, b in zip_longest(now, before, fillvalue=0)]


async def count_types(client: StoreClient, counter: TypeCounter) -> float:
    """Add one daemon's counts of types; if no answer comes, they may be lost.

    Returns:
        The seconds until the next one.
    """
    await client.run(
        OperatorVerb.COUNT_TYPES, microseconds(TYPES_INTERVAL), TYPES_KEPT, counter.take()
    )
    return TYPES_EVERY


async def read_types(client: StoreClient, hours: float) -> TypeFigures:
    """What handlers did within so many hours, in whole intervals.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now, packed = await client.run(OperatorVerb.STATISTICS, "tallies")
    at, kept = seconds(now), [orjson.loads(each) for each in packed]
    first = int((at - hours * 3600) // TYPES_INTERVAL) + 1
    return _figures(at, hours, [each for each in kept if each["number"] >= first])


def _figures(at: float, hours: float, kept: Sequence[Mapping[str, Any]]) -> TypeFigures:
    if not kept:
        return TypeFigures(at, 0.0, None)
    begun = min(each["number"] for each in kept) * TYPES_INTERVAL
    span = max(1.0, min(hours * 3600, at - begun))
    counts: dict[str, list[list[int]]] = defaultdict(list)
    for each in kept:
        for name, told in each["types"].items():
            counts[name].append(told)
    capacity = sum(each["capacity"] for each in kept)
    share = min(1.0, sum(each["busy"] for each in kept) / capacity) if capacity else None
    rows = [_type_row(name, span, *_added(each)) for name, each in counts.items()]
    rows.sort(key=lambda row: (-row.done, row.type))
    return TypeFigures(at, round(span / 3600, 2), share, rows)


def _type_row(name: str, span: float, done: int, failed: int, dead: int, *buckets: int) -> TypeRow:
    return TypeRow(
        type=name,
        done=done,
        failed=failed,
        dead=dead,
        rate=round(done / span, 4),
        duration_p50=quantile(buckets, 0.5, HANDLING, None),
        duration_p95=quantile(buckets, 0.95, HANDLING, None),
    )


def quantile(
    counts: Sequence[int],
    share: float,
    bounds: Sequence[float] = BOUNDS,
    ratio: float | None = 10 ** (1 / _PER_DECADE),
) -> float | None:
    """The value below which that share of the counted lies, in seconds; ``None`` without any.

    Exact to its bucket. A value above all buckets is given as the highest bound.

    Args:
        counts: one a bucket.
        share: 0.5 for the median.
        bounds: the buckets' upper bounds.
        ratio: of two bounds, if the values of a bucket count as evenly spread on a logarithmic
            scale; ``None`` on a linear one.
    """
    wanted = share * sum(counts)
    if wanted == 0:
        return None
    passed, low = 0.0, 0.0
    for count, high in zip(counts, bounds, strict=False):
        if count and passed + count >= wanted:
            part = (wanted - passed) / count
            value = high * ratio ** (part - 1) if ratio else low + (high - low) * part
            return float(f"{value:.3g}")
        passed, low = passed + count, high
    return float(bounds[-1])
