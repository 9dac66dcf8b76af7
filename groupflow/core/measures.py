"""What a daemon counts about itself: plain numbers that its parts add to as they work.

Nearly all of it runs on one event loop; the lease's thread has numbers of its own, to which only it
adds. So nothing is locked. Adding costs well under a microsecond: a histogram is a preallocated
list of buckets and a bisection. `ops/metrics.py` reads the numbers at each scrape, and knows how to
show them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

Pause: TypeAlias = Literal[
    "", "waiting", "outbox", "memory", "store_full", "too_few_replicas", "store_unavailable"
]
"""Why intake takes nothing in; empty where it does."""

PAUSES: Final[tuple[Pause, ...]] = get_args(Pause)[1:]
OUTCOMES: Final = ("complete", "retry", "advance", "bury", "release", "cancel", "defer")
"""The ways to settle."""

CANCELS: Final = ("requested", "over", "unknown")
"""What a message that cancels a task may come to."""

TYPES_SHOWN: Final = 50  # task types counted by name; each costs some twenty time series
OTHER: Final = "other"
EXCHANGE: Final = "exchange"

WAITING: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
HANDLING: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
DURATIONS: Final = tuple(10 ** (step / 10 - 3) for step in range(81))
"""Seconds, from a millisecond to a day: of what Redis keeps, for quantiles within an eighth."""
SCRIPTS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
BATCHES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Histogram:
    """Observations by bucket."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)  # upper ones, inclusive, rising
        self.counts = [0] * (len(bounds) + 1)  # the last: above all bounds; not cumulated
        self.sum = 0.0  # of all observations

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class TypeMeasures:
    """The tasks of one type."""

    __slots__ = ("handling", "settled")

    def __init__(self) -> None:
        self.settled = dict.fromkeys(OUTCOMES, 0)  # claims that ended
        self.handling = Histogram(HANDLING)  # seconds that each attempt took


class Types:
    """The task types that have a handler, `TYPES_SHOWN` at most; all the rest is one.

    Types come from strangers, and each would be a time series for good: so a message's type alone
    never becomes one.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        shown = sorted(set(names) - {OTHER})[:TYPES_SHOWN]
        self.named = {name: TypeMeasures() for name in shown}
        self.other = TypeMeasures()

    def of(self, name: str) -> TypeMeasures:
        """The measures of a type."""
        return self.named.get(name, self.other)

    def every(self) -> list[TypeMeasures]:
        """All measures."""
        return [*self.named.values(), self.other]


@dataclass(slots=True)
class PoolMeasures:
    types: Types = field(default_factory=Types)  # by task type, shared by the pools of a daemon
    claimed: int = 0  # claims that workers were given
    lost: int = 0  # claims that another worker owned when they ended
    superseded: int = 0  # what ran or asked for a retry, and gave way to newer tasks
    waiting: Histogram = field(default_factory=lambda: Histogram(WAITING))
    """Seconds from when a task could first have been claimed until it was."""
    batches: Histogram = field(default_factory=lambda: Histogram(BATCHES))
    """Tasks settled and claimed by one exchange with the store."""


@dataclass(slots=True)
class IntakeMeasures:
    messages: int = 0  # taken in: written to the store, and acked
    enqueued: int = 0  # those that became a task
    duplicates: int = 0  # those whose id was known already
    buried: int = 0  # those that could not be routed, and became a dead letter
    superseded: int = 0  # waiting tasks that newer ones have replaced
    # messages that cancel a task, by what they came to
    cancels: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CANCELS, 0))
    # by rule, messages that became dead letters since their group was full
    group_full: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    batches: Histogram = field(default_factory=lambda: Histogram(BATCHES))  # messages an enqueue
    terms: int = 0  # connections on which it has begun to consume
    handed_over: int = 0  # queues given up for another daemon, so that each has its share
    paused: Pause = ""  # why it takes nothing in now


class ScriptMeasures:
    """Round trips to the store, by verb; `EXCHANGE` where several scripts travelled together."""

    def __init__(self) -> None:
        # Of each round trip that was answered; and how many weren't, or were refused.
        self.seconds = defaultdict[str, Histogram](lambda: Histogram(SCRIPTS))
        self.failed = defaultdict[str, int](int)

    def observe(self, verb: str, seconds: float) -> None:
        """Count one round trip."""
        self.seconds[verb].observe(seconds)

    def expect(self, *verbs: str) -> None:
        """Make room for verbs that another thread runs: it may add none during a read."""
        for verb in verbs:
            self.seconds[verb], self.failed[verb] = Histogram(SCRIPTS), 0

    def fail(self, verb: str) -> None:
        self.failed[verb] += 1


@dataclass(slots=True)
class UpkeepMeasures:
    """What the duties beside the straight path do."""

    resumed: int = 0  # tasks that this daemon's earlier process had held, taken up again
    taken_over: int = 0  # tasks taken over from other daemons
    promoted: int = 0  # delayed tasks and groups that became due
    expired: int = 0  # tasks that had to start by a time, and had not
    swept: int = 0  # dead letters removed past their retention
    archived: int = 0  # bodies of dead letters that left Redis for RabbitMQ
    told: int = 0  # events that RabbitMQ has taken
    untold: int = 0  # of these, those that it dropped: no queue is bound for them
    replied: int = 0  # replies to what asked for them
    followed: int = 0  # follow-up tasks
    renewals_failed: int = 0  # renewals of the lease without an answer
    sessions_lost: int = 0  # sessions that ended while this daemon still ran
    loop_blocks: int = 0  # times that the event loop was blocked for a lease or longer
    loop_given_up: int = 0
    """Times that it was blocked for longer than it may, and the lease was given up."""


@dataclass(slots=True)
class ScheduleMeasures:
    """What this daemon has made of schedules."""

    made: int = 0  # ticks that became tasks
    missed: int = 0  # ticks that weren't made when they were due
    skipped: int = 0  # ticks left out, since the last one wasn't over
    lateness: Histogram = field(default_factory=lambda: Histogram(WAITING))
    """Seconds from when each was due until it was a task."""


@dataclass(slots=True)
class ScanMeasures:
    """What this daemon has done of one scan."""

    pages: int = 0  # pages fetched
    done: int = 0  # rows
    deferred: int = 0  # attempts at rows that failed, with another one to come
    dead: int = 0  # rows that became dead letters

    @property
    def rows(self) -> dict[str, int]:
        """Attempts at rows, by how they ended."""
        return {"done": self.done, "deferred": self.deferred, "dead": self.dead}


class Measures:
    """All that one daemon counts."""

    def __init__(
        self,
        types: Iterable[str] = (),
        pools: Iterable[str] = (),
        scans: Iterable[str] = (),
    ) -> None:
        """Starts from zero, for the task types that have a handler, the pools and the scans."""
        self.scans = {name: ScanMeasures() for name in scans}
        self.types = Types(types)
        self.pools = {pool: PoolMeasures(self.types) for pool in pools}
        self.intake = IntakeMeasures()
        self.scripts = ScriptMeasures()
        self.upkeep = UpkeepMeasures()
        self.schedules = ScheduleMeasures()


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a daemon is, at one instant."""

    workers: dict[str, int]  # by pool
    busy: dict[str, int]  # workers that run a handler, by pool
    lease_left: float  # seconds until our lease ends, unless it is renewed; below 0 once it has
    consumes: bool | None
    """Whether intake has a connection on which it consumes; ``None`` without an intake."""
    bytes_in_flight: int  # of messages that were delivered and are not written yet, headers too
    active_queues: int = 0  # queues whose messages come to this daemon
