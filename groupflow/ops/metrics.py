"""The metrics as Prometheus scrapes them.

A scrape reads the counts of the daemon's parts, and asks the store for its totals: a few scripts a
partition, of constant cost, at most once a second for all scrapes together. If Redis, or a
partition, is away, the scrape says so within a second, with the totals read last.

docs/metrics.md explains each metric; a test compares the two. Metrics that begin with
``groupflow_cluster_`` come from the store, and each daemon tells the same.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from itertools import accumulate
from math import inf
from time import monotonic
from typing import Any, NamedTuple, TypeAlias, TypeVar

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

from groupflow.core.errors import GroupflowError
from groupflow.core.measures import OTHER, PAUSES, Histogram, Measures, Vitals
from groupflow.operate.namespace import Namespace
from groupflow.operate.pools import PoolStatus, pools_in, sum_of_pools
from groupflow.operate.schedules import Schedule, schedules_in
from groupflow.operate.totals import Totals, sum_of, totals_in
from groupflow.ops.loop_lag import LoopLag
from groupflow.ops.snapshots import Snapshot
from groupflow.store.client import StoreClient

CONTENT_TYPE = CONTENT_TYPE_LATEST
FRESH = 1.0  # seconds for which a scrape reuses what it read from the store
READING = 1.0  # seconds that the store has for its answer
SCHEDULES_SHOWN = 100  # by name; each costs two time series

_Value = TypeVar("_Value")
Rows: TypeAlias = _Value | Mapping[Any, _Value] | None
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

    async def _ask(self) -> None:
        try:
            found = (await self._namespace.ask_all(_look, READING)).by_partition
        except (GroupflowError, TimeoutError, ValueError):
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
    yield from _from_scans(measures)
    yield from _from_upkeep(measures)
    yield from _from_schedules(measures)
    seconds, failed = measures.scripts.seconds, measures.scripts.failed
    yield _histogram(
        "groupflow_script_seconds",
        "Round trips to the store by script; exchange: several at once",
        seconds,
        "verb",
    )
    failures = {verb: failed.get(verb, 0) for verb in sorted({*seconds, *failed})}
    yield _counter("groupflow_scripts_failed", "Round trips that failed", failures, "verb")


def _from_intake(measures: Measures) -> Iterator[Metric]:
    intake = measures.intake
    written = "Messages written to the store and acked"
    yield _counter("groupflow_messages_taken", written, intake.messages)
    yield _counter("groupflow_tasks_enqueued", "Messages that became a task", intake.enqueued)
    yield _counter("groupflow_duplicates_dropped", "Messages of a known id", intake.duplicates)
    yield _counter("groupflow_intake_terms", "Connections on which intake consumed", intake.terms)
    yield _counter("groupflow_queues_handed_over", "Queues given to others", intake.handed_over)
    yield _histogram("groupflow_enqueue_batch_messages", "Messages an enqueue", intake.batches)
    paused = {reason: intake.paused == reason for reason in PAUSES}
    yield _gauge("groupflow_intake_paused", "1: intake waits, for this reason", paused, "reason")


def _from_work(measures: Measures) -> Iterator[Metric]:
    pools, types = measures.pools, {**measures.types.named, OTHER: measures.types.other}
    claimed = {name: pool.claimed for name, pool in pools.items()}
    lost = {name: pool.lost for name, pool in pools.items()}
    settled = {
        (name, outcome): number
        for name, type_ in types.items()
        for outcome, number in type_.settled.items()
    }
    retried, died = (
        sum(type_.settled[outcome] for type_ in types.values()) for outcome in ("retry", "bury")
    )
    buried = {"intake": measures.intake.buried, "worker": died}
    superseded = measures.intake.superseded + sum(pool.superseded for pool in pools.values())
    ended = "Claims that ended, by outcome"
    yield _counter("groupflow_tasks_claimed", "Tasks given to workers", claimed, "pool")
    yield _counter("groupflow_tasks_settled", ended, settled, "type", "outcome")
    yield _counter("groupflow_tasks_retried", "Attempts that failed and come again", retried)
    yield _counter("groupflow_tasks_buried", "New dead letters", buried, "at")
    yield _counter("groupflow_superseded", "Tasks that newer ones replaced", superseded)
    yield _counter("groupflow_claims_lost", "Claims that others have now", lost, "pool")
    yield _histogram(
        "groupflow_task_waiting_seconds",
        "From when a task could first be claimed until it was",
        {name: pool.waiting for name, pool in pools.items()},
        "pool",
    )
    yield _histogram(
        "groupflow_task_handling_seconds",
        "Handlers' time, an attempt",
        {name: type_.handling for name, type_ in types.items()},
        "type",
    )
    yield _histogram(
        "groupflow_exchange_batch_tasks",
        "Tasks settled and claimed in one round trip",
        {name: pool.batches for name, pool in pools.items()},
        "pool",
    )


def _from_scans(measures: Measures) -> Iterator[Metric]:
    pages = {name: scan.pages for name, scan in measures.scans.items()}
    rows = {
        (name, outcome): number
        for name, scan in measures.scans.items()
        for outcome, number in scan.rows.items()
    }
    yield _counter("groupflow_scan_pages", "Pages of rows that were fetched", pages, "scan")
    yield _counter("groupflow_scan_rows", "Attempts at rows", rows, "scan", "outcome")


def _from_upkeep(measures: Measures) -> Iterator[Metric]:
    upkeep = measures.upkeep
    resumed = {"self": upkeep.resumed, "other": upkeep.taken_over}
    died = "Tasks whose daemon died or lost its lease"
    due = "Delayed tasks, groups that came due"
    unanswered = "Renewals without an answer"
    lost = "Sessions lost by a living daemon"
    blocks = "Blocks of a lease or longer"
    given_up = "Blocks that cost the lease"
    archived = "Bodies that left Redis for RabbitMQ"
    yield _counter("groupflow_tasks_resumed", died, resumed, "held_by")
    yield _counter("groupflow_tasks_promoted", due, upkeep.promoted)
    yield _counter("groupflow_dead_archived", archived, upkeep.archived)
    yield _counter("groupflow_dead_letters_expired", "Dead letters past retention", upkeep.expired)
    yield _counter("groupflow_lease_renewals_failed", unanswered, upkeep.renewals_failed)
    yield _counter("groupflow_sessions_lost", lost, upkeep.sessions_lost)
    yield _counter("groupflow_event_loop_blocks", blocks, upkeep.loop_blocks)
    yield _counter("groupflow_event_loop_blocks_given_up", given_up, upkeep.loop_given_up)


def _from_schedules(measures: Measures) -> Iterator[Metric]:
    schedules = measures.schedules
    late = "groupflow_schedule_lateness_seconds"
    yield _counter("groupflow_schedule_ticks", "Ticks that became tasks", schedules.made)
    yield _counter("groupflow_schedule_ticks_missed", "Ticks not made in time", schedules.missed)
    yield _counter(
        "groupflow_schedule_ticks_skipped", "Ticks that would overlap", schedules.skipped
    )
    yield _histogram(late, "From due until a task", schedules.lateness)


def from_vitals(vitals: Vitals, *, lease: float, lag: float) -> Iterator[Metric]:
    """How the daemon is now; the lease and the event loop's lag are in seconds."""
    yield _gauge("groupflow_workers", "Workers of this daemon", vitals.workers, "pool")
    yield _gauge("groupflow_workers_busy", "Those that run a handler", vitals.busy, "pool")
    yield _gauge("groupflow_lease_seconds", "The lease as configured", lease)
    yield _gauge("groupflow_lease_margin_seconds", "Until our lease ends", vitals.lease_left)
    yield _gauge("groupflow_event_loop_lag_seconds", "Worst delay of the last 15 s", lag)
    yield _gauge(
        "groupflow_intake_in_flight_bytes", "Messages not yet taken", vitals.bytes_in_flight
    )
    yield _gauge("groupflow_intake_active_queues", "Queues that send here", vitals.active_queues)
    yield _gauge("groupflow_broker_up", "1: connected, and consuming", vitals.consumes)


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
    waited = {"plain": totals.waited_plain, "grouped": totals.waited_grouped}
    aside, daemons = totals.delayed_tasks - totals.asleep, totals.daemons
    silence = max((each.heartbeat_age for each in daemons), default=0.0)
    yield _gauge("groupflow_cluster_tasks", "Tasks by state", tasks, "pool", "state")
    yield _gauge("groupflow_cluster_tasks_delayed", "Queued ones that stand aside", aside)
    yield _gauge("groupflow_cluster_groups", "Groups by state", groups, "state")
    limited = totals.standing_tenants
    yield _gauge("groupflow_cluster_tenants_at_limit", "Tenants that may start nothing", limited)
    by_hand = {"tenant": totals.limited_tenants, "group": totals.limited_groups}
    yield _gauge("groupflow_cluster_limits_by_hand", "Limits that people set", by_hand, "of")
    yield _gauge("groupflow_cluster_dead_letters", "Dead letters", totals.dead)
    held = {
        "delayed": totals.delayed_bytes,
        "carried": totals.carried_bytes,
        "dead": totals.dead_bytes,
    }
    yield _gauge("groupflow_cluster_held_bytes", "Bytes that are held for long", held, "of")
    yield _gauge(
        "groupflow_cluster_oldest_waiting_seconds", "Wait of what goes next", waited, "pool"
    )
    yield _gauge("groupflow_cluster_daemons", "Daemons with a session", len(daemons))
    workers = sum(each.workers for each in daemons)
    yield _gauge("groupflow_cluster_workers", "Workers of all daemons", workers)
    yield _gauge("groupflow_cluster_heartbeat_age_seconds", "Longest silence", silence)


def from_schedules(schedules: Iterable[Schedule]) -> Iterator[Metric]:
    """What the store has of schedules, the longest overdue first."""
    shown = sorted(schedules, key=lambda each: -each.overdue)[:SCHEDULES_SHOWN]
    overdue = {each.name: each.overdue for each in shown}
    interval = {each.name: each.interval for each in shown}
    of = "schedule"
    yield _gauge("groupflow_cluster_schedule_overdue_seconds", "Since it was due", overdue, of)
    yield _gauge("groupflow_cluster_schedule_interval_seconds", "Tick to tick", interval, of)


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
        yield _gauge(f"groupflow_cluster_pool_{name}", meaning, rows, "pool")


def of_store(*, is_up: bool, age: float | None) -> Iterator[Metric]:
    """Whether the store answered last, and how many seconds ago it last did, if it ever has."""
    yield _gauge("groupflow_store_up", "1: Redis answered when last asked", is_up)
    yield _gauge("groupflow_store_read_age_seconds", "Age of groupflow_cluster_*", age)


def of_partitions(up: Mapping[int, bool], totals: Mapping[int, Totals]) -> Iterator[Metric]:
    """Metrics of each partition, where a namespace has several.

    Args:
        up: whether it answered when last asked.
        totals: its last answer, for partitions that ever answered.
    """
    answers = {str(number): is_up for number, is_up in up.items()}
    yield _gauge("groupflow_partition_up", "1: it answered when last asked", answers, "partition")
    queued = {
        str(number): each.queued_plain + each.queued_grouped - each.asleep
        for number, each in totals.items()
    }
    yield _gauge("groupflow_cluster_partition_tasks", "Tasks that wait in it", queued, "partition")


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    meaning: str,
    rows: Rows[float],
    *labels: str,
) -> Metric:
    family = kind(name, meaning, labels=labels)
    for values, number in _by_labels(rows):
        family.add_metric(values, number)
    return family


_counter = partial(_family, CounterMetricFamily)
_gauge = partial(_family, GaugeMetricFamily)


def _histogram(name: str, meaning: str, rows: Rows[Histogram], *labels: str) -> Metric:
    family = HistogramMetricFamily(name, meaning, labels=labels)
    for values, histogram in _by_labels(rows):
        bounds = map(floatToGoString, (*histogram.bounds, inf))
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        family.add_metric(values, buckets, histogram.sum)
    return family


def _by_labels(rows: Rows[_Value]) -> Iterator[tuple[tuple[str, ...], _Value]]:
    """Each value with those of its labels."""
    if isinstance(rows, Mapping):
        for key, value in rows.items():
            yield key if isinstance(key, tuple) else (key,), value
    elif rows is not None:
        yield (), rows
