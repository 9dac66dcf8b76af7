"""Samples of the totals, kept for an hour in one hash, so that any daemon shows the whole cluster.

The totals are the store's own. Daemons count latencies (from the enqueue to the accepted settle) in
buckets, and the store adds them up; it costs the tasks nothing.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from groupflow.operate.replies import named
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.settlements import Complete, Settlement

INTERVAL = 10.0  # seconds between two samples
MINUTE = 60.0  # seconds of which rates are the mean
KEPT = 361  # samples: an hour of them, and the one that the first rate is counted from
WALKED = 1000  # groups that a survey walks on
LONGEST = 20  # groups that it keeps
_PER_DECADE = 5
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
    now, is_new = await client.run(OperatorVerb.SAMPLE, microseconds(INTERVAL), KEPT, counts)
    latencies.set_clock(seconds(now) - (before + time.time()) / 2)
    return bool(is_new)


async def sample(client: StoreClient, latencies: Latencies) -> float:
    """Take a sample; the daemon that begins an interval also surveys for the longest lanes.

    Returns the seconds until the next one.
    """
    if await take_sample(client, latencies):
        await survey(client)
    return INTERVAL


async def survey(client: StoreClient) -> int:
    """Walk on through the groups to find the longest lanes.

    Returns:
        How many were looked at.
    """
    return int(await client.run(OperatorVerb.SURVEY, WALKED, LONGEST))


Row: TypeAlias = tuple[int, *tuple[Any, ...]]
"""A sample as it is kept: when (µs), the totals, and the counts of latencies."""


async def read_rows(client: StoreClient) -> list[Row]:
    """The samples of the last hour in one store, oldest first."""
    reply = named(await client.run(OperatorVerb.SAMPLES))
    oldest = reply["now"] - microseconds(KEPT * INTERVAL)
    kept = named(reply["samples"])
    kept.pop("longest", None)
    rows = [orjson.loads(packed) for packed in kept.values()]
    return sorted((int(row[0]), *row[1:]) for row in rows if int(row[0]) > oldest)


def samples_of(rows: Sequence[Row]) -> list[Sample]:
    """Samples as they are shown, each with its rates since the one before."""
    return [_sample(row, rows[n - 1] if n else None) for n, row in enumerate(rows)]


async def read_samples(client: StoreClient) -> list[Sample]:
    """The last hour, oldest first.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    return samples_of(await read_rows(client))


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

    def mean(values: Iterable[float | None]) -> float:
        return round(sum(value or 0.0 for value in values) / len(lately), 3)

    return Rates(
        taken_in=mean(each.taken_in for each in lately),
        done=mean(each.done for each in lately),
        buried=mean(each.buried for each in lately),
    )


def _sample(row: Sequence[Any], before: Sequence[Any] | None) -> Sample:
    at, _taken, _done, _buried, _crashed, *waiting, ready, held, dead, counts = row
    queued, running = waiting[0] + waiting[1], waiting[2] + waiting[3]
    rates: list[float | None] = [None] * 4
    if before is not None:
        span = seconds(at - before[0])
        # Totals fall only if an operator emptied the store: that is no rate.
        rates = [round(max(0, row[i] - before[i]) / span, 3) for i in range(1, 5)]
    return Sample(
        seconds(at),
        taken_in=rates[0],
        done=rates[1],
        buried=rates[2],
        crashed=rates[3],
        queued=queued,
        running=running,
        ready=ready,
        delayed=held,
        dead=dead,
        latency_p50=quantile(counts, 0.5),
        latency_p99=quantile(counts, 0.99),
        measured=sum(counts),
    )


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The value below which that share of the counted lies, in seconds; ``None`` without any.

    Exact to its bucket, which is 58 % wide; within it, as if evenly spread on a logarithmic scale.
    """
    wanted = share * sum(counts)
    if wanted == 0:
        return None
    passed = 0.0
    for index, count in enumerate(counts):
        if count and passed + count >= wanted:
            if index >= len(BOUNDS):
                return BOUNDS[-1]
            high = math.log10(BOUNDS[index])
            low = high - 1 / _PER_DECADE
            return float(f"{10 ** (low + (high - low) * (wanted - passed) / count):.3g}")
        passed += count
    return BOUNDS[-1]
