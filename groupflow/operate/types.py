"""Types: what became of their attempts in a day; which of them no daemon knows.

The scripts that settle count each attempt in `tally`, by how it ended, its duration and its type:
so what a daemon has settled counts even if it is killed at once. Every ten seconds `sample` moves
these counts into rings of intervals: `RINGS`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import orjson

from groupflow.core.measures import DURATIONS
from groupflow.operate.namespace import Namespace, by_name, summed
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import Argument, Call, StoreClient
from groupflow.store.clock import microseconds, seconds

_AT_ONCE = 10  # intervals that one script reads
_DONE, _FAILED, _DEAD, _STAGE = "d", "f", "x", "s"  # how an attempt ended
_UNKNOWN = "--"  # the bucket of what has no duration: rows of scans, deaths without an attempt


class Ring(NamedTuple):
    """Intervals of one length, the newest in place of those that have become too old."""

    name: str  # in front of each place
    length: float  # seconds of an interval
    kept: int  # intervals

    @property
    def told(self) -> list[Argument]:
        """What `sample.lua` takes of it."""
        return [self.name, microseconds(self.length), self.kept]


RINGS = {1: Ring("m", 60.0, 61), 6: Ring("f", 300.0, 73), 24: Ring("t", 1200.0, 73)}
"""By hours that figures may be of."""


@dataclass(frozen=True, slots=True)
class TypeRow:
    """What became of the attempts at one type's tasks.

    Of a scan what is done, failed and dead are rows, and its turns are stages. Quantiles are known
    to an eighth, as attempts are counted in buckets.
    """

    type: str
    done: int
    failed: int  # attempts that are tried again
    dead: int
    rate: float  # tasks done a second
    duration_p50: float | None  # seconds that half of the attempts took at most
    duration_p95: float | None
    stages: int  # attempts that were done, and whose tasks went on with another stage
    histogram: list[tuple[float, int]]  # upper bounds (s) of buckets, and attempts in each
    done_steps: list[int]  # of each step of the time
    failed_steps: list[int]
    dead_steps: list[int]


@dataclass(frozen=True, slots=True)
class TypeFigures:
    """All types over some hours."""

    at: float  # Unix seconds by Redis's clock
    hours: float  # that the figures cover: those asked for, or fewer if less is known
    utilisation: float | None
    """The share of the workers' time that handlers took; None if no daemon reported any."""
    since: float  # when the first step began, Unix seconds
    step: float  # seconds
    types: list[TypeRow] = field(default_factory=list)  # the most frequent first


class _Interval(NamedTuple):
    number: int
    busy: float
    capacity: float
    types: Mapping[str, Mapping[str, int]]  # by type, by end and bucket


async def read_types(namespace: Namespace, hours: int) -> TypeFigures:
    """What became of attempts within so many hours (one of `RINGS`), in whole intervals.

    Raises:
        StoreUnavailable: no partition answers.
    """
    ring = RINGS[hours]
    parts = (await namespace.ask_all(partial(_read, ring=ring))).all
    at = max(now for now, _ in parts)
    first, last = int((at - hours * 3600) // ring.length) + 1, int(at // ring.length)
    kept = [each for _, some in parts for each in some if first <= each.number <= last]
    since = first * ring.length
    if not kept:
        return TypeFigures(at, 0.0, None, since, ring.length)
    begun = min(each.number for each in kept) * ring.length
    span = max(1.0, min(hours * 3600, at - begun))
    capacity = sum(each.capacity for each in kept)
    share = min(1.0, sum(each.busy for each in kept) / capacity) if capacity else None
    found: dict[str, list[tuple[int, Mapping[str, int]]]] = defaultdict(list)
    for each in kept:
        for name, counts in each.types.items():
            found[name].append((each.number - first, counts))
    rows = [_row(name, span, last - first + 1, some) for name, some in found.items()]
    rows.sort(key=lambda row: (-row.done, row.type))
    return TypeFigures(at, round(span / 3600, 2), share, since, ring.length, rows)


async def _read(client: StoreClient, ring: Ring) -> tuple[float, list[_Interval]]:
    """Redis's clock, and the intervals of a partition, with what no sample has moved there yet."""
    places = [f"{ring.name}{place}" for place in range(ring.kept)]
    parts = [places[n : n + _AT_ONCE] for n in range(0, len(places), _AT_ONCE)]
    calls: list[Call] = [(OperatorVerb.STATISTICS, ["tallies", *each]) for each in parts]
    last: Call = OperatorVerb.STATISTICS, ["tally", *ring.told]
    *answers, (now, newest, flat) = await client.run_all([*calls, last])
    at, packed = seconds(now), [each for _, some in answers for each in some if each]
    # A sample may have been taken meanwhile: the last script read both sides of that at once.
    current = int(at // ring.length)
    found = [each for each in map(_interval, packed) if each.number < current]
    found += [each for each in map(_interval, newest) if each.number == current]
    tallied = defaultdict[str, dict[str, int]](dict)
    for kind, count in zip(flat[::2], flat[1::2], strict=True):
        tallied[kind[3:].decode()][kind[:3].decode()] = int(count)
    if tallied:
        found.append(_Interval(current, 0.0, 0.0, tallied))
    return at, found


def _interval(packed: bytes) -> _Interval:
    kept = orjson.loads(packed)
    return _Interval(kept["number"], kept["busy"], kept["capacity"], kept["types"])


def _row(
    name: str, span: float, steps: int, counted: Sequence[tuple[int, Mapping[str, int]]]
) -> TypeRow:
    ends = defaultdict[str, list[int]](lambda: [0] * steps)
    buckets = [0] * (len(DURATIONS) + 1)
    for step, counts in counted:
        for kind, number in counts.items():
            ends[kind[0]][step] += number
            if kind[1:] != _UNKNOWN:
                buckets[int(kind[1:])] += number
    done = sum(ends[_DONE])
    return TypeRow(
        type=name,
        done=done,
        failed=sum(ends[_FAILED]),
        dead=sum(ends[_DEAD]),
        rate=round(done / span, 4),
        duration_p50=quantile(buckets, 0.5),
        duration_p95=quantile(buckets, 0.95),
        stages=sum(ends[_STAGE]),
        histogram=_histogram(buckets),
        done_steps=ends[_DONE],
        failed_steps=ends[_FAILED],
        dead_steps=ends[_DEAD],
    )


def _histogram(buckets: Sequence[int]) -> list[tuple[float, int]]:
    """From the first bucket that has any to the last one; what is above all counts as below."""
    *counts, above = buckets
    counts[-1] += above
    used = [place for place, count in enumerate(counts) if count]
    places = range(used[0], used[-1] + 1) if used else ()
    return [(float(f"{DURATIONS[place]:.3g}"), counts[place]) for place in places]


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The value below which that share of the counted lies, in seconds; ``None`` without any.

    It is the middle of its bucket, so that it is an eighth too large or too small at most. A value
    above all buckets is given as the highest bound.

    Args:
        counts: one for each bucket: of `DURATIONS`, and above.
        share: 0.5 for the median.
    """
    passed = [*accumulate(counts)]
    if not passed or not passed[-1]:
        return None
    place = bisect_left(passed, share * passed[-1])
    if place == len(DURATIONS):
        return DURATIONS[-1]
    return float(f"{DURATIONS[place] * _MIDDLE:.2g}")


_MIDDLE = (DURATIONS[0] / DURATIONS[1]) ** 0.5  # of a bucket, by its upper bound


@dataclass(frozen=True, slots=True)
class UnknownType:
    """A type that tasks wait for a daemon to know."""

    type: str
    tasks: int  # how many wait
    seconds: float  # for which no living daemon has known it


@dataclass(frozen=True, slots=True)
class UnknownTypes:
    """What daemons don't know."""

    missing: list[str]  # of the types asked for, those that no running daemon knows
    waiting: list[UnknownType]  # the longest unknown first, some of each partition


async def read_unknown_types(namespace: Namespace, asked: Sequence[str]) -> UnknownTypes:
    """The types that no daemon knows; none of those asked for is missing where no daemon runs.

    Raises:
        StoreUnavailable: no partition answers.
    """

    async def ask(client: StoreClient) -> dict[str, Any]:
        return named(await client.run(OperatorVerb.TYPES, *asked), "now")

    answers = (await namespace.ask_all(ask)).all
    # A daemon that has no session in one partition may have one in another.
    missing = [
        {name.decode() for name in answer["missing"]} for answer in answers if answer["knowing"]
    ]
    everywhere = set.intersection(*missing) if missing else set[str]()
    parts = by_name((each for answer in answers for each in _waiting(answer)), "type")
    waiting = sorted(map(summed, parts.values()), key=lambda each: -each.seconds)
    return UnknownTypes(sorted(everywhere), waiting)


def _waiting(answer: dict[str, Any]) -> Iterator[UnknownType]:
    for row in answer["waiting"]:
        facts = named(row, "since")
        yield UnknownType(facts["type"], facts["tasks"], answer["now"] - facts["since"])
