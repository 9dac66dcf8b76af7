"""The metrics as Prometheus scrapes them.

A scrape reads the counts of the daemon's parts, and asks the store for its totals: a few scripts a
partition, of constant cost, at most once a second for all scrapes together. If Redis, or a
partition, is away, the scrape says so within a second, with the totals read last.

docs/metrics.md explains each metric; a test compares the two. Metrics that begin with
``groupflow_cluster_`` come from the store, and each daemon tells the same.
"""

from __future__ import annotations

import asyncio
import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from itertools import accumulate
from math import inf
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from groupflow.core.measures import OTHER, PAUSES, Histogram, Measures, Vitals
from groupflow.operate.namespace import Namespace
from groupflow.operate.pools import PoolStatus, pools_in, sum_of_pools
from groupflow.operate.schedules import Schedule, schedules_in
from groupflow.operate.totals import ENDS, Totals, sum_of, totals_in
from groupflow.ops.snapshots import Snapshot
from groupflow.store.client import StoreClient

CONTENT_TYPE = CONTENT_TYPE_LATEST
FRESH = 1.0  # seconds for which a scrape reuses what it read from the store
READING = 1.0  # seconds that the store has for its answer
LAG_PACE = 0.5  # seconds between two looks at the event loop's lag
LAGS_KEPT = 30  # looks: a scrape some seconds later still sees a short block
SCHEDULES_SHOWN = 100  # by name; each costs two time series

Rows: TypeAlias = float | Histogram | Mapping[Any, Any] | None
"""A metric's value without labels, if it has one; or its values by label, or tuple of labels."""


class _Answer(NamedTuple):
    """What a partition told last."""

    totals: Totals
    schedules: list[Schedule]
    pools: list[PoolStatus]
    at: float  # when it told (monotonic)


async def _look(client: StoreClient) -> _Answer:
    pools = await pools_in(client, workers=0)
    return _Answer(await totals_in(client), await schedules_in(client), pools, monotonic())


class StoreMetrics(Collector):
    """Metrics of the store, and of the process; any process has them."""

    def __init__(self, namespace: Namespace) -> None:
        """Reads nothing yet; the namespace should have connections of its own."""
        self._namespace = namespace
        self._last: dict[int, _Answer] = {}  # by partition
        self._up: set[int] = set()  # the partitions that answered when last asked
        self._asked = Snapshot(self._ask, FRESH)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    async def render(self) -> bytes:
        """The metrics in Prometheus's text format; raises nothing, and takes `READING` at most."""
        await self._asked.get()
        return generate_latest(self._registry)

    async def families(self) -> list[Metric]:
        """The same before they are text."""
        await self._asked.get()
        return [*self._registry.collect()]

    async def _ask(self) -> None:
        try:
            found = (await self._namespace.ask_all(_look, READING)).by_partition
        except Exception:  # noqa: BLE001
            # Away, or another program wrote to our keys: the scrape tells the rest.
            found = {}
        self._up = {*found}
        self._last |= found

    def collect(self) -> Iterator[Metric]:
        """All metrics but the process's, by what was read last."""
        yield build_info()
        yield from self._own()
        answers, age = self._last.values(), None
        totals = {number: each.totals for number, each in self._last.items()}
        if answers:
            age = monotonic() - min(each.at for each in answers)
            yield from from_totals(sum_of(totals, []))
            yield from from_schedules(one for each in answers for one in each.schedules)
            pools = sum_of_pools(one for each in answers for one in each.pools)
            yield from from_pools(pools.values())
        yield from of_store(is_up=bool(self._up), age=age)
        if (count := len(self._namespace)) > 1:
            yield from of_partitions(
                {number: number in self._up for number in range(count)}, totals
            )

    def _own(self) -> Iterator[Metric]:
        """Metrics of the process's own parts."""
        yield from ()


class LoopLag:
    """How late the event loop is, and when it last turned: a handler may block it.

    It sleeps for `LAG_PACE`, repeatedly, and measures how late it wakes. The loop alone writes
    here. The lease's thread reads: plain floats, and a queue that C code reads whole, which is
    sound under the GIL.
    """

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=LAGS_KEPT)
        self._due = inf
        self.turned = inf  # when (monotonic) the loop was last seen to turn; in the future at first

    async def run(self) -> None:
        while True:
            await self.run_once(LAG_PACE)

    async def run_once(self, pace: float) -> None:
        """One look, with `pace` seconds of sleep."""
        self.turned = monotonic()
        self._due = due = self.turned + pace
        await asyncio.sleep(pace)
        self._lags.append(max(0.0, monotonic() - due))

    @property
    def worst(self) -> float:
        """Seconds: the longest delay of the last `LAGS_KEPT` looks, and of one that is overdue."""
        return max(0.0, monotonic() - self._due, *self._lags)


class Metrics(StoreMetrics):
    """All of a daemon's metrics."""

    def __init__(
        self,
        measures: Measures,
        vitals: Callable[[], Vitals],
        namespace: Namespace,
        *,
        lease: float,
        lag: LoopLag,
    ) -> None:
        """Binds the sources; each scrape asks for the vitals."""
        super().__init__(namespace)
        self._measures = measures
        self._vitals = vitals
        self._lease = lease
        self._lag = lag

    def _own(self) -> Iterator[Metric]:
        yield from from_measures(self._measures)
        yield from from_vitals(self._vitals(), lease=self._lease, lag=self._lag.worst)


def build_info() -> Metric:
    """Which groupflow this is, on which Python."""
    facts = {"version": version("groupflow"), "python": platform.python_version()}
    return InfoMetricFamily("groupflow_build", "The version that runs", value=facts)


def from_measures(measures: Measures) -> Iterator[Metric]:
    """What the daemon has counted since it was started."""
    yield from _from_intake(measures)
    yield from _from_work(measures)
    yield from _from_upkeep(measures)
    pages = {name: scan.pages for name, scan in measures.scans.items()}
    rows = {(name, of): n for name, scan in measures.scans.items() for of, n in scan.rows.items()}
    yield _counter("scan_pages", "Pages of rows that were fetched", pages, "scan")
    yield _counter("scan_rows", "Attempts at rows", rows, "scan", "outcome")
    schedules = measures.schedules
    yield _counter("schedule_ticks", "Ticks that became tasks", schedules.made)
    yield _counter("schedule_ticks_missed", "Ticks not made in time", schedules.missed)
    yield _counter("schedule_ticks_skipped", "Ticks that would overlap", schedules.skipped)
    yield _histogram("schedule_lateness_seconds", "From due until a task", schedules.lateness)
    seconds, failed = measures.scripts.seconds, measures.scripts.failed
    meaning = "Round trips to the store by script; exchange: several at once"
    yield _histogram("script_seconds", meaning, seconds, "verb")
    failures = {verb: failed.get(verb, 0) for verb in sorted({*seconds, *failed})}
    yield _counter("scripts_failed", "Round trips that failed", failures, "verb")


def _from_intake(measures: Measures) -> Iterator[Metric]:
    intake = measures.intake
    paused = {reason: intake.paused == reason for reason in PAUSES}
    yield _counter("messages_taken", "Messages written to the store and acked", intake.messages)
    yield _counter("tasks_enqueued", "Messages that became a task", intake.enqueued)
    yield _counter("duplicates_dropped", "Messages of a known id", intake.duplicates)
    refused = dict(intake.group_full)
    yield _counter("messages_cancelling", "Messages that cancel", intake.cancels, "verdict")
    yield _counter("group_full", "Messages that full groups refused", refused, "rule")
    yield _counter("intake_terms", "Connections on which intake consumed", intake.terms)
    yield _counter("queues_handed_over", "Queues given to others", intake.handed_over)
    yield _histogram("enqueue_batch_messages", "Messages an enqueue", intake.batches)
    yield _gauge("intake_paused", "1: intake waits, for this reason", paused, "reason")


def _from_work(measures: Measures) -> Iterator[Metric]:
    types = {**measures.types.named, OTHER: measures.types.other}
    settled = {(name, of): n for name, type_ in types.items() for of, n in type_.settled.items()}
    retried, died = (sum(each.settled[of] for each in types.values()) for of in ("retry", "bury"))
    buried = {"intake": measures.intake.buried, "worker": died}
    pools = measures.pools
    superseded = measures.intake.superseded + sum(pool.superseded for pool in pools.values())
    claimed = {name: pool.claimed for name, pool in pools.items()}
    lost = {name: pool.lost for name, pool in pools.items()}
    waiting = {name: pool.waiting for name, pool in pools.items()}
    handling = {name: type_.handling for name, type_ in types.items()}
    batches = {name: pool.batches for name, pool in pools.items()}
    waited = "From when a task could first be claimed until it was"
    exchanged = "Tasks settled and claimed in one round trip"
    yield _counter("tasks_claimed", "Tasks given to workers", claimed, "pool")
    yield _counter("tasks_settled", "Claims that ended, by outcome", settled, "type", "outcome")
    yield _counter("tasks_retried", "Attempts that failed and come again", retried)
    yield _counter("tasks_buried", "New dead letters", buried, "at")
    yield _counter("superseded", "Tasks that newer ones replaced", superseded)
    yield _counter("claims_lost", "Claims that others have now", lost, "pool")
    yield _histogram("task_waiting_seconds", waited, waiting, "pool")
    yield _histogram("task_handling_seconds", "Handlers' time, an attempt", handling, "type")
    yield _histogram("exchange_batch_tasks", exchanged, batches, "pool")


def _from_upkeep(measures: Measures) -> Iterator[Metric]:
    upkeep = measures.upkeep
    resumed = {"self": upkeep.resumed, "other": upkeep.taken_over}
    died = "Tasks whose daemon died or lost its lease"
    blocked = "Blocks that cost the lease"
    yield _counter("tasks_resumed", died, resumed, "held_by")
    yield _counter("tasks_promoted", "Delayed tasks, groups that came due", upkeep.promoted)
    yield _counter("expired", "Tasks that had to start in time", upkeep.expired)
    yield _counter("dead_archived", "Bodies that left Redis for RabbitMQ", upkeep.archived)
    yield _counter("dead_letters_swept", "Dead letters past retention", upkeep.swept)
    yield _counter("events_told", "Events that RabbitMQ has taken", upkeep.told)
    yield _counter("events_unrouted", "Of these, with no queue bound", upkeep.untold)
    yield _counter("replies_sent", "Replies to reply_to", upkeep.replied)
    yield _counter("tasks_followed", "Follow-up tasks of others", upkeep.followed)
    yield _counter("lease_renewals_failed", "Renewals without an answer", upkeep.renewals_failed)
    yield _counter("sessions_lost", "Sessions lost by a living daemon", upkeep.sessions_lost)
    yield _counter("event_loop_blocks", "Blocks of a lease or longer", upkeep.loop_blocks)
    yield _counter("event_loop_blocks_given_up", blocked, upkeep.loop_given_up)


def from_vitals(vitals: Vitals, *, lease: float, lag: float) -> Iterator[Metric]:
    """How the daemon is now; the lease and the event loop's lag are in seconds."""
    yield _gauge("workers", "Workers of this daemon", vitals.workers, "pool")
    yield _gauge("workers_busy", "Those that run a handler", vitals.busy, "pool")
    yield _gauge("lease_seconds", "The lease as configured", lease)
    yield _gauge("lease_margin_seconds", "Until our lease ends", vitals.lease_left)
    yield _gauge("event_loop_lag_seconds", "Worst delay of the last 15 s", lag)
    yield _gauge("intake_in_flight_bytes", "Messages not yet taken", vitals.bytes_in_flight)
    yield _gauge("intake_active_queues", "Queues that send here", vitals.active_queues)
    yield _gauge("broker_up", "1: connected, and consuming", vitals.consumes)


def from_totals(totals: Totals) -> Iterator[Metric]:
    """What the store holds; the same from each daemon."""
    tasks = {
        ("plain", "queued"): totals.queued_plain,
        ("grouped", "queued"): totals.queued_grouped - totals.asleep,
        ("grouped", "asleep"): totals.asleep,
        ("plain", "running"): totals.running_plain,
        ("grouped", "running"): totals.running_grouped,
    }
    groups = {
        "ready": totals.ready,
        "running": totals.running_grouped,
        "delayed": totals.delayed,
        "parked": totals.parked,
        "paused": totals.paused,
    }
    held = {
        "delayed": totals.delayed_bytes,
        "carried": totals.carried_bytes,
        "dead": totals.dead_bytes,
        "outbox": totals.outbox_bytes,
    }
    waited = {"plain": totals.waited_plain, "grouped": totals.waited_grouped}
    ends = {how: getattr(totals, f"{how}_total") for how in ENDS} | {"dead": totals.buried_total}
    by_hand = {
        "tenant": totals.limited_tenants,
        "group": totals.limited_groups,
        "type": totals.limited_types,
    }
    aside, daemons = totals.delayed_tasks - totals.asleep, totals.daemons
    workers = sum(each.workers for each in daemons)
    silence = max((each.heartbeat_age for each in daemons), default=0.0)
    at_limit = "Tenants that may start nothing"
    yield _gauge("cluster_tasks", "Tasks by state", tasks, "pool", "state")
    yield _gauge("cluster_tasks_delayed", "Queued ones that stand aside", aside)
    yield _gauge("cluster_groups", "Groups by state", groups, "state")
    yield _gauge("cluster_tenants_at_limit", at_limit, totals.standing_tenants)
    yield _gauge("cluster_types_at_limit", "Types that may start nothing", totals.standing_types)
    yield _gauge("cluster_limits_by_hand", "Limits that people set", by_hand, "of")
    yield _gauge("cluster_tasks_ended", "Tasks that ended so far", ends, "end")
    yield _gauge("cluster_groups_drained", "Drains so far", totals.drained_total)
    yield _gauge("cluster_dead_letters", "Dead letters", totals.dead)
    yield _gauge("cluster_held_bytes", "Bytes that are held for long", held, "of")
    yield _gauge("cluster_outbox_age_seconds", "Wait of the oldest event", totals.outbox_age)
    yield _gauge("cluster_outbox_full", "Partitions that claim nothing", totals.outbox_full)
    yield _gauge("cluster_oldest_waiting_seconds", "Wait of what goes next", waited, "pool")
    yield _gauge("cluster_daemons", "Daemons with a session", len(daemons))
    yield _gauge("cluster_workers", "Workers of all daemons", workers)
    yield _gauge("cluster_heartbeat_age_seconds", "Longest silence", silence)


def from_schedules(schedules: Iterable[Schedule]) -> Iterator[Metric]:
    """What the store has of schedules, the longest overdue first."""
    shown = sorted(schedules, key=lambda each: -each.overdue)[:SCHEDULES_SHOWN]
    overdue = {each.name: each.overdue for each in shown}
    interval = {each.name: each.interval for each in shown}
    yield _gauge("cluster_schedule_overdue_seconds", "Since it was due", overdue, "schedule")
    yield _gauge("cluster_schedule_interval_seconds", "Tick to tick", interval, "schedule")


def from_pools(pools: Iterable[PoolStatus]) -> Iterator[Metric]:
    """What the store has of pools; a configuration has 100 at most."""
    every = {each.name: each for each in pools}
    columns: list[tuple[str, str, Callable[[PoolStatus], float]]] = [
        ("claimable_tasks", "Tasks that could be claimed", lambda each: each.claimable),
        ("held_tasks", "Tasks that workers hold", lambda each: each.held),
        ("oldest_waiting_seconds", "Wait of what goes next", lambda each: each.waited),
        ("workers", "Workers whose lease runs", lambda each: each.known),
        ("silent_workers", "Not heard of for half of it", lambda each: each.silent),
    ]
    for name, meaning, value in columns:
        rows = {of: value(each) for of, each in every.items()}
        yield _gauge(f"cluster_pool_{name}", meaning, rows, "pool")


def of_store(*, is_up: bool, age: float | None) -> Iterator[Metric]:
    """Whether the store answered last, and how many seconds ago it last did, if it ever has."""
    yield _gauge("store_up", "1: Redis answered when last asked", is_up)
    yield _gauge("store_read_age_seconds", "Age of groupflow_cluster_*", age)


def of_partitions(up: Mapping[int, bool], totals: Mapping[int, Totals]) -> Iterator[Metric]:
    """Metrics of each partition, where a namespace has several.

    Args:
        up: whether it answered when last asked.
        totals: its last answer, for partitions that ever answered.
    """
    answers = {str(number): is_up for number, is_up in up.items()}
    yield _gauge("partition_up", "1: it answered when last asked", answers, "partition")
    queued = {
        str(number): each.queued_plain + each.queued_grouped - each.asleep
        for number, each in totals.items()
    }
    yield _gauge("cluster_partition_tasks", "Tasks that wait in it", queued, "partition")
    untold = {str(number): each.outbox_bytes for number, each in totals.items()}
    yield _gauge("cluster_partition_outbox_bytes", "Events to be told", untold, "partition")


def _family(kind: type[Any], name: str, meaning: str, rows: Rows, *labels: str) -> Metric:
    """A family of `groupflow_` and its name."""
    family: Metric = kind(f"groupflow_{name}", meaning, labels=labels)
    for key, value in (rows if isinstance(rows, Mapping) else {(): rows}).items():
        of = key if isinstance(key, tuple) else (key,)
        if isinstance(value, Histogram):
            bounds = map(floatToGoString, (*value.bounds, inf))
            buckets = list(zip(bounds, accumulate(value.counts), strict=True))
            family.add_metric(of, buckets, value.sum)  # type: ignore[attr-defined]
        elif value is not None:
            family.add_metric(of, value)  # type: ignore[attr-defined]
    return family


_counter = partial(_family, CounterMetricFamily)
_gauge = partial(_family, GaugeMetricFamily)
_histogram = partial(_family, HistogramMetricFamily)
