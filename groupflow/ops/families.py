"""Turns a daemon's counts into Prometheus's metrics: names, units, labels.

docs/metrics.md explains each family; a test compares the two. Families that begin with
``groupflow_cluster_`` come from the store, and each daemon tells the same.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from groupflow.core.measures import OTHER, PAUSES, Histogram, Measures, TypeMeasures, Types, Vitals
from groupflow.operate.pools import PoolStatus
from groupflow.operate.schedules import Schedule
from groupflow.operate.totals import Totals

SCHEDULES_SHOWN = 100  # by name; each costs two time series

Rows = Mapping[tuple[str, ...], float]


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
    scripts = measures.scripts
    yield _histogram(
        "groupflow_script_seconds",
        "Round trips to the store by script; exchange: several at once",
        {(verb,): histogram for verb, histogram in scripts.seconds.items()},
        ["verb"],
    )
    verbs = sorted({*scripts.seconds, *scripts.failed})
    failed: Rows = {(verb,): scripts.failed.get(verb, 0) for verb in verbs}
    yield _counter("groupflow_scripts_failed", "Round trips that failed", failed, ["verb"])


def _from_intake(measures: Measures) -> Iterator[Metric]:
    intake = measures.intake
    yield _one(
        "groupflow_messages_taken", "Messages written to the store and acked", intake.messages
    )
    yield _one("groupflow_tasks_enqueued", "Messages that became a task", intake.enqueued)
    yield _one("groupflow_duplicates_dropped", "Messages of a known id", intake.duplicates)
    yield _one("groupflow_intake_terms", "Connections on which intake consumed", intake.terms)
    yield _one("groupflow_queues_handed_over", "Queues given to others", intake.handed_over)
    yield _histogram(
        "groupflow_enqueue_batch_messages", "Messages an enqueue", {(): intake.batches}, []
    )
    paused: Rows = {(reason,): float(intake.paused == reason) for reason in PAUSES}
    yield _gauge("groupflow_intake_paused", "1: intake waits, for this reason", paused, ["reason"])


def _from_work(measures: Measures) -> Iterator[Metric]:
    pools, types = measures.pools, _by_type(measures.types)
    claimed: Rows = {(name,): pool.claimed for name, pool in pools.items()}
    lost: Rows = {(name,): pool.lost for name, pool in pools.items()}
    settled: Rows = {
        (name, outcome): number
        for name, type_ in types
        for outcome, number in type_.settled.items()
    }

    def total(outcome: str) -> int:
        return sum(type_.settled[outcome] for _, type_ in types)

    buried: Rows = {("intake",): measures.intake.buried, ("worker",): total("bury")}
    yield _counter("groupflow_tasks_claimed", "Tasks given to workers", claimed, ["pool"])
    yield _counter(
        "groupflow_tasks_settled", "Claims that ended, by outcome", settled, ["type", "outcome"]
    )
    yield _one("groupflow_tasks_retried", "Attempts that failed and come again", total("retry"))
    yield _counter("groupflow_tasks_buried", "New dead letters", buried, ["at"])
    superseded = measures.intake.superseded + sum(pool.superseded for pool in pools.values())
    yield _one("groupflow_superseded", "Tasks that newer ones replaced", superseded)
    yield _counter("groupflow_claims_lost", "Claims that others have now", lost, ["pool"])
    yield _histogram(
        "groupflow_task_waiting_seconds",
        "From when a task could first be claimed until it was",
        {(name,): pool.waiting for name, pool in pools.items()},
        ["pool"],
    )
    yield _histogram(
        "groupflow_task_handling_seconds",
        "Handlers' time, an attempt",
        {(name,): type_.handling for name, type_ in types},
        ["type"],
    )
    yield _histogram(
        "groupflow_exchange_batch_tasks",
        "Tasks settled and claimed in one round trip",
        {(name,): pool.batches for name, pool in pools.items()},
        ["pool"],
    )


def _from_scans(measures: Measures) -> Iterator[Metric]:
    pages: Rows = {(name,): scan.pages for name, scan in measures.scans.items()}
    rows: Rows = {
        (name, outcome): number
        for name, scan in measures.scans.items()
        for outcome, number in scan.rows.items()
    }
    yield _counter("groupflow_scan_pages", "Pages of rows that were fetched", pages, ["scan"])
    yield _counter("groupflow_scan_rows", "Attempts at rows", rows, ["scan", "outcome"])


def _by_type(types: Types) -> list[tuple[str, TypeMeasures]]:
    return [*types.named.items(), (OTHER, types.other)]


def _from_upkeep(measures: Measures) -> Iterator[Metric]:
    upkeep = measures.upkeep
    resumed: Rows = {("self",): upkeep.resumed, ("other",): upkeep.taken_over}
    yield _counter(
        "groupflow_tasks_resumed", "Tasks whose daemon died or lost its lease", resumed, ["held_by"]
    )
    yield _one("groupflow_tasks_promoted", "Delayed tasks, groups that came due", upkeep.promoted)
    yield _one("groupflow_dead_archived", "Bodies that left Redis for RabbitMQ", upkeep.archived)
    yield _one("groupflow_dead_letters_expired", "Dead letters past retention", upkeep.expired)
    yield _one(
        "groupflow_lease_renewals_failed", "Renewals without an answer", upkeep.renewals_failed
    )
    yield _one("groupflow_sessions_lost", "Sessions lost by a living daemon", upkeep.sessions_lost)
    yield _one("groupflow_event_loop_blocks", "Blocks of a lease or longer", upkeep.loop_blocks)
    given_up = "Blocks that cost the lease"
    yield _one("groupflow_event_loop_blocks_given_up", given_up, upkeep.loop_given_up)


def _from_schedules(measures: Measures) -> Iterator[Metric]:
    schedules = measures.schedules
    yield _one("groupflow_schedule_ticks", "Ticks that became tasks", schedules.made)
    yield _one("groupflow_schedule_ticks_missed", "Ticks not made in time", schedules.missed)
    yield _one("groupflow_schedule_ticks_skipped", "Ticks that would overlap", schedules.skipped)
    late: dict[tuple[str, ...], Histogram] = {(): schedules.lateness}
    yield _histogram("groupflow_schedule_lateness_seconds", "From due until a task", late, [])


def from_vitals(vitals: Vitals, *, lease: float, lag: float) -> Iterator[Metric]:
    """How the daemon is now; the lease and the event loop's lag are in seconds."""
    workers: Rows = {(pool,): number for pool, number in vitals.workers.items()}
    busy: Rows = {(pool,): number for pool, number in vitals.busy.items()}
    yield _gauge("groupflow_workers", "Workers of this daemon", workers, ["pool"])
    yield _gauge("groupflow_workers_busy", "Those that run a handler", busy, ["pool"])
    yield _now("groupflow_lease_seconds", "The lease as configured", lease)
    yield _now("groupflow_lease_margin_seconds", "Until our lease ends", vitals.lease_left)
    yield _now("groupflow_event_loop_lag_seconds", "Worst delay of the last 15 s", lag)
    yield _now("groupflow_intake_in_flight_bytes", "Messages not yet taken", vitals.bytes_in_flight)
    yield _now("groupflow_intake_active_queues", "Queues that send here", vitals.active_queues)
    up: Rows = {} if vitals.consumes is None else {(): float(vitals.consumes)}
    yield _gauge("groupflow_broker_up", "1: connected, and consuming", up, [])


def from_totals(totals: Totals) -> Iterator[Metric]:
    """What the store holds; the same from each daemon."""
    tasks: Rows = {
        ("plain", "queued"): totals.queued_plain,
        ("grouped", "queued"): totals.queued_grouped - totals.asleep,
        ("grouped", "asleep"): totals.asleep,
        ("plain", "running"): totals.running_plain,
        ("grouped", "running"): totals.running_grouped,
    }
    groups: Rows = {
        ("ready",): totals.ready,
        ("running",): totals.running_grouped,
        ("delayed",): totals.delayed,
        ("parked",): totals.parked,
        ("paused",): totals.paused,
    }
    waited: Rows = {("plain",): totals.waited_plain, ("grouped",): totals.waited_grouped}
    aside, daemons = totals.delayed_tasks - totals.asleep, totals.daemons
    silence = max((each.heartbeat_age for each in daemons), default=0.0)
    yield _gauge("groupflow_cluster_tasks", "Tasks by state", tasks, ["pool", "state"])
    yield _now("groupflow_cluster_tasks_delayed", "Queued ones that stand aside", aside)
    yield _gauge("groupflow_cluster_groups", "Groups by state", groups, ["state"])
    limited = totals.standing_tenants
    yield _now("groupflow_cluster_tenants_at_limit", "Tenants that may start nothing", limited)
    by_hand: Rows = {("tenant",): totals.limited_tenants, ("group",): totals.limited_groups}
    yield _gauge("groupflow_cluster_limits_by_hand", "Limits that people set", by_hand, ["of"])
    yield _now("groupflow_cluster_dead_letters", "Dead letters", totals.dead)
    held: Rows = {
        ("delayed",): totals.delayed_bytes,
        ("carried",): totals.carried_bytes,
        ("dead",): totals.dead_bytes,
    }
    yield _gauge("groupflow_cluster_held_bytes", "Bytes that are held for long", held, ["of"])
    yield _gauge(
        "groupflow_cluster_oldest_waiting_seconds", "Wait of what goes next", waited, ["pool"]
    )
    yield _now("groupflow_cluster_daemons", "Daemons with a session", len(daemons))
    workers = sum(each.workers for each in daemons)
    yield _now("groupflow_cluster_workers", "Workers of all daemons", workers)
    yield _now("groupflow_cluster_heartbeat_age_seconds", "Longest silence", silence)


def from_schedules(schedules: Iterable[Schedule]) -> Iterator[Metric]:
    """What the store has of schedules, the longest overdue first."""
    shown = sorted(schedules, key=lambda each: -each.overdue)[:SCHEDULES_SHOWN]
    overdue: Rows = {(each.name,): each.overdue for each in shown}
    interval: Rows = {(each.name,): each.interval for each in shown}
    of = ["schedule"]
    yield _gauge("groupflow_cluster_schedule_overdue_seconds", "Since it was due", overdue, of)
    yield _gauge("groupflow_cluster_schedule_interval_seconds", "Tick to tick", interval, of)


def from_pools(pools: Iterable[PoolStatus]) -> Iterator[Metric]:
    """What the store has of pools; a configuration has 100 at most."""
    every = {(each.name,): each for each in pools}
    columns: list[tuple[str, str, Callable[[PoolStatus], float]]] = [
        ("claimable_tasks", "Tasks that could be claimed", lambda each: each.claimable),
        ("held_tasks", "Tasks that workers hold", lambda each: each.held),
        ("oldest_waiting_seconds", "Wait of what goes next", lambda each: each.waited),
        ("workers", "Workers whose lease runs", lambda each: each.known),
        ("silent_workers", "Not heard of for half of it", lambda each: each.silent),
    ]
    for name, meaning, value in columns:
        rows: Rows = {of: value(each) for of, each in every.items()}
        yield _gauge(f"groupflow_cluster_pool_{name}", meaning, rows, ["pool"])


def of_store(*, is_up: bool, age: float | None) -> Iterator[Metric]:
    """Whether the store answered last, and how many seconds ago it last did, if it ever has."""
    yield _now("groupflow_store_up", "1: Redis answered when last asked", float(is_up))
    ages: Rows = {} if age is None else {(): age}
    yield _gauge("groupflow_store_read_age_seconds", "Age of groupflow_cluster_*", ages, [])


def of_partitions(up: Mapping[int, bool], totals: Mapping[int, Totals]) -> Iterator[Metric]:
    """Metrics of each partition, where a namespace has several.

    Args:
        up: whether it answered when last asked.
        totals: its last answer, for partitions that ever answered.
    """
    answers: Rows = {(str(number),): float(is_up) for number, is_up in up.items()}
    yield _gauge("groupflow_partition_up", "1: it answered when last asked", answers, ["partition"])
    queued: Rows = {
        (str(number),): each.queued_plain + each.queued_grouped - each.asleep
        for number, each in totals.items()
    }
    yield _gauge(
        "groupflow_cluster_partition_tasks", "Tasks that wait in it", queued, ["partition"]
    )


def _one(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(name, meaning, value=value)


def _counter(name: str, meaning: str, rows: Rows, labels: list[str]) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, number in rows.items():
        family.add_metric(values, number)
    return family


def _now(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def _gauge(name: str, meaning: str, rows: Rows, labels: list[str]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, number in rows.items():
        family.add_metric(values, number)
    return family


def _histogram(
    name: str, meaning: str, rows: Mapping[tuple[str, ...], Histogram], labels: list[str]
) -> Metric:
    family = HistogramMetricFamily(name, meaning, labels=labels)
    for values, histogram in rows.items():
        family.add_metric(values, list(_buckets(histogram)), histogram.sum)
    return family


def _buckets(histogram: Histogram) -> Iterable[tuple[str, float]]:
    below = 0
    for bound, number in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += number
        yield str(floatToGoString(bound)), below  # type: ignore[no-untyped-call]
