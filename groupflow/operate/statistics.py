"""Statistics: samples of the totals over an hour and a day, as one hash in each partition.

The totals are the store's own. Daemons count how long tasks took, and every ten seconds the store
adds up what is new; it costs the tasks nothing. The same call keeps how attempts ended, which the
settling scripts count by type: see `groupflow.operate.types`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, zip_longest
from operator import sub
from time import monotonic
from typing import Any, TypeAlias

import orjson

from groupflow.core.measures import DURATIONS, Types
from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.totals import Totals
from groupflow.operate.types import RINGS, Ring, quantile
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.settlements import Complete, Settlement

INTERVAL = 10.0  # seconds between two samples
MINUTE = 60.0  # seconds of which rates are the mean
KEPT = 361  # samples: an hour of them, and the one that the first rate is counted from
THINNED = 24  # intervals of which one sample is kept for a day, in a second ring of so many
SMOOTHED = 30  # samples of an hour whose tasks a quantile is of: it would be noise of few tasks
MEASURED = 8  # settlements of an exchange whose tasks are measured: a quantile needs no more
WALKED = 1000  # groups that a look for the longest lanes walks on
LONGEST = 20  # groups that it notes
_SAMPLES = {False: Ring("", INTERVAL, KEPT), True: Ring("d", INTERVAL * THINNED, KEPT)}
"""The rings of samples: of an hour, and of a day."""
_RATES = ("taken_in", "done", "buried", "crashed")  # of a row's totals, behind its time
_TIMES = ("latency", "waiting", "running")  # whose counts stand behind a row's totals, in order
_COUNTS = 12  # columns of a row in front of them


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals at one instant, the rates since the sample before, and how long tasks took.

    A quantile is of the tasks that were done within `SMOOTHED` samples of an hour, or one of a day;
    ``None`` where none was. It is known to an eighth, as tasks are counted in buckets.
    """

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
    # seconds from its enqueue that half of the done tasks had taken at most
    latency_p50: float | None
    latency_p99: float | None  # the same for 99 of 100
    measured: int  # how many tasks were measured since the sample before
    waiting_p50: float | None  # the same of the seconds before the attempt that ended it
    waiting_p99: float | None
    running_p50: float | None  # and of those that this attempt took
    running_p99: float | None
    taken_total: int  # tasks that ever came in, as the next two
    done_total: int
    buried_total: int


class Latencies:
    """Counts how long tasks took in all, waited and ran, until the next sample takes the counts."""

    def __init__(self) -> None:
        self._counts = self._none()
        self._ahead = 0.0

    @staticmethod
    def _none() -> list[list[int]]:
        return [[0] * (len(DURATIONS) + 1) for _ in _TIMES]

    def observe(self, settlements: Sequence[Settlement]) -> None:
        """Count accepted settlements, of many some; only a completed task has a latency."""
        (whole, waited, ran), now = self._counts, time.time() + self._ahead
        for settlement in settlements[:MEASURED]:
            if isinstance(settlement, Complete):
                took = now - settlement.claim.task.enqueued_at
                whole[bisect_left(DURATIONS, took)] += 1
                waited[bisect_left(DURATIONS, took - settlement.seconds)] += 1
                ran[bisect_left(DURATIONS, settlement.seconds)] += 1

    def set_clock(self, ahead: float) -> None:
        """How many seconds Redis's clock, by which tasks are enqueued, is ahead of this one."""
        self._ahead = ahead

    def take(self) -> list[list[int]]:
        """The counts so far, in the order of `_TIMES`; they begin at 0 again."""
        counts, self._counts = self._counts, self._none()
        return counts


class Busyness:
    """How much of its workers' time a daemon's handlers took."""

    def __init__(self, types: Types, workers: Callable[[], int]) -> None:
        """Takes the daemon's own counts, and what says how many workers it has: reloads do."""
        self._types = types
        self._workers = workers
        self._busy = 0.0
        self._asked = monotonic()

    def take(self) -> tuple[float, float]:
        """Seconds that handlers took since the last call, and that workers had for them."""
        busy, asked = sum(each.handling.sum for each in self._types.every()), monotonic()
        told = busy - self._busy, self._workers() * (asked - self._asked)
        self._busy, self._asked = busy, asked
        return told


async def take_sample(
    client: StoreClient, latencies: Latencies, busyness: Busyness | None = None
) -> bool:
    """Keep the totals of this interval, unless another daemon has, and add what this one measured.

    If no answer comes, that is not sent again: it may have arrived, and a gap misleads less than a
    task counted twice.

    Returns:
        Whether the interval was new.
    """
    busy, capacity = busyness.take() if busyness else (0.0, 0.0)
    told = orjson.dumps({"times": latencies.take(), "busy": busy, "capacity": capacity})
    before = time.time()
    rings = (*_SAMPLES.values(), *RINGS.values())
    facts = chain.from_iterable(ring.told for ring in rings)
    now, is_new = await client.run(OperatorVerb.SAMPLE, told, *facts)
    latencies.set_clock(seconds(now) - (before + time.time()) / 2)
    return bool(is_new)


async def sample(
    client: StoreClient, latencies: Latencies, busyness: Busyness | None = None
) -> float:
    """Take a sample; the daemon that begins an interval also looks for the longest lanes.

    Returns the seconds until the next one.
    """
    if await take_sample(client, latencies, busyness):
        await find_longest(client)
    return INTERVAL


async def find_longest(client: StoreClient) -> int:
    """Walk on through the groups to find the longest lanes.

    Returns:
        How many were looked at.
    """
    return int(await client.run(OperatorVerb.FIND_LONGEST, WALKED, LONGEST))


SampleRow: TypeAlias = tuple[Any, ...]
"""A sample as it is kept: when (µs), the totals, and the counts of each of `_TIMES`."""


async def read_samples(namespace: Namespace, *, of_day: bool = False) -> list[Sample]:
    """The last hour, oldest first, each sample with its rates since the one before.

    Of a day it has fewer: one of `THINNED` intervals, and the newest of all.

    Raises:
        StoreUnavailable: no partition answers.
    """
    parts = (await namespace.ask_all(partial(_rows_in, of_day=of_day))).all
    rows = together([rows for rows, _ in parts], _SAMPLES[of_day].length)
    newest = together([newest for _, newest in parts])
    rows += [row for row in newest if of_day and rows and row[0] > rows[-1][0]]
    number = 1 if of_day else SMOOTHED
    columns = range(_COUNTS, _COUNTS + len(_TIMES))
    lately = [_lately([row[place] for row in rows], number) for place in columns]
    return [*map(_sample, rows, [None, *rows], *lately)]


async def _rows_in(client: StoreClient, *, of_day: bool) -> tuple[list[SampleRow], list[SampleRow]]:
    """A partition's samples of the last hour, or day, oldest first; and its newest one."""
    now, packed = await client.run(OperatorVerb.STATISTICS, "samples")
    rings: dict[bool, list[SampleRow]] = {False: [], True: []}
    for found in map(orjson.loads, packed):
        is_day = isinstance(found, dict)  # the longest lanes lie there as well
        row = found.get("day") if is_day else found
        oldest = now - microseconds(KEPT * _SAMPLES[is_day].length)
        # An older groupflow has kept shorter ones.
        if row and len(row) == _COUNTS + len(_TIMES) and int(row[0]) > oldest:
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
        counts = [_added(row[n] for row in now) for n in range(_COUNTS, len(now[0]))]
        found.append((max(row[0] for row in now), *totals, *counts))
    return found


def _added(counts: Iterable[Any]) -> list[int]:
    """The sums of lists of counts, place by place; shorter lists add nothing."""
    return [int(sum(each)) for each in zip_longest(*counts, fillvalue=0)]


def _lately(rows: Sequence[Sequence[int]], number: int) -> list[list[int]]:
    """Of each of some counts, by bucket, the sums with those before it, so many together."""
    none = [0] * (len(DURATIONS) + 1)
    sums = [*accumulate(rows, lambda *counts: _added(counts), initial=none)]
    before = [none] * (number - 1) + sums
    return [[*map(sub, each, gone)] for each, gone in zip(sums[1:], before, strict=False)]


@dataclass(frozen=True, slots=True)
class Rates:
    """Tasks a second over the last minute, or since the first sample where that is less."""

    taken_in: float
    done: float
    buried: float
    seconds: float  # that they are of


def rates_of(samples: Sequence[Sample], now: Totals) -> Rates | None:
    """The rates from a sample of about a minute ago to these totals.

    ``None`` if no daemon has kept samples lately: none runs.
    """
    if not samples or now.at - samples[-1].at >= MINUTE:
        return None
    before = [each for each in samples if now.at - each.at >= MINUTE]
    then = before[-1] if before else samples[0]
    span = max(now.at - then.at, 0.001)
    names = {"taken_in": "taken_total", "done": "done_total", "buried": "buried_total"}
    grown = {name: max(0, getattr(now, of) - getattr(then, of)) for name, of in names.items()}
    return Rates(
        **{name: round(each / span, 4) for name, each in grown.items()}, seconds=round(span, 3)
    )


def _sample(row: SampleRow, before: SampleRow | None, *lately: list[int]) -> Sample:
    at, *_, ready, held, dead = row[:_COUNTS]
    facts: dict[str, Any] = dict.fromkeys(_RATES)
    if before is not None:
        span = seconds(at - before[0])
        # Totals fall only if an operator emptied the store: that is no rate.
        grown = [
            max(0, total - earlier) for total, earlier in zip(row[1:5], before[1:5], strict=True)
        ]
        facts = {name: round(each / span, 3) for name, each in zip(_RATES, grown, strict=True)}
    for name, counts in zip(_TIMES, lately, strict=True):
        facts[f"{name}_p50"] = quantile(counts, 0.5)
        facts[f"{name}_p99"] = quantile(counts, 0.99)
    return Sample(
        seconds(at),
        **facts,
        queued=row[5] + row[6],
        running=row[7] + row[8],
        ready=ready,
        delayed=held,
        dead=dead,
        measured=sum(row[_COUNTS]),
        taken_total=row[1],
        done_total=row[2],
        buried_total=row[3],
    )
