"""What a real daemon tells of itself while it works, and when a server is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from groupflow import App, Dead, Retry, Task
from groupflow.broker.publisher import Outgoing
from groupflow.core.measures import Histogram, Measures, Vitals
from groupflow.flow.counting import FullGroups, count_batch
from groupflow.operate.namespace import Namespace
from groupflow.ops.health import check_store
from groupflow.ops.metrics import LoopLag, Metrics, StoreMetrics, from_measures
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from tests.deadlines import deadline, until
from tests.operate.spread import Spread
from tests.ops.daemons import publish, serving, settings_of
from tests.store.actors import made
from tests.store.bench import Bench, arrival
from tests.store.task_state import pass_time, retry
from tests.turns import turns


@pytest.fixture(autouse=True)
def slow_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is there may take its time: tests run beside others."""
    monkeypatch.setattr("groupflow.ops.metrics.READING", deadline())


POOLS = ("plain", "grouped")


class Scrape:
    """What one scrape told."""

    def __init__(self, text: bytes) -> None:
        self._samples = [
            sample
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        ]

    @classmethod
    async def of(cls, metrics: StoreMetrics) -> Scrape:
        return cls(await metrics.render())

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels; at least one there must be."""
        found = [
            sample.value
            for sample in self._samples
            if sample.name == f"groupflow_{name}" and labels.items() <= sample.labels.items()
        ]
        assert found, f"no {name} with {labels}"
        return sum(found)

    def has(self, name: str) -> bool:
        return any(sample.name == f"groupflow_{name}" for sample in self._samples)


async def scraped_until(metrics: Metrics, condition: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until something is the case."""
    found = list[Scrape]()

    async def is_so() -> bool:
        found.append(await Scrape.of(metrics))
        return condition(found[-1])

    await until(is_so)
    return found[-1]


@pytest.fixture
def settings(redis_server: RedisServer, rabbitmq_server: RabbitmqServer) -> Settings:
    rule = GroupRule(app="crm", key="{g}", on_dead="park")
    workers = {"plain": 2, "grouped": 3, "lease": 60.0, "unknown_for": 0.0}
    return settings_of(redis_server, rabbitmq_server, groups=[rule], workers=workers)


async def test_a_daemon_counts_what_it_does(settings: Settings) -> None:
    app, gate, reached = App(), asyncio.Event(), asyncio.Event()

    @app.handler("waits")
    async def waits(task: Task) -> None:
        reached.set()
        await gate.wait()

    app.handler("fails")(lambda _: Retry(after=0.0))
    app.handler("dies")(lambda _: Dead("never"))

    async with serving(settings, app) as daemon:
        await publish(
            settings,
            Outgoing(b'{"app_name": "crm", "g": "a"}', "waits", "1"),
            Outgoing(b'{"app_name": "crm", "g": "a"}', "waits", "2"),
            Outgoing(b'{"app_name": "crm", "g": "a"}', "waits", "2"),
            Outgoing(b"{}", "fails", "3"),
            Outgoing(b'{"app_name": "crm", "g": "b"}', "dies", "4"),
            Outgoing(b"{}", "nobody's", "5"),
            Outgoing(b"no JSON", "waits", "\x00"),
        )
        await asyncio.wait_for(reached.wait(), deadline())
        busy = await scraped_until(daemon.metrics, lambda now: now("cluster_dead_letters") == 4)
        assert [busy("workers", pool=pool) for pool in POOLS] == [2, 3]
        assert [busy("workers_busy", pool=pool) for pool in POOLS] == [0, 1]
        for state in ("running", "queued"):
            assert busy("cluster_tasks", pool="grouped", state=state) == 1
        for state in ("running", "parked"):
            assert busy("cluster_groups", state=state) == 1
        assert 0 < busy("lease_margin_seconds") <= busy("lease_seconds") == 60
        assert busy("broker_up") == busy("store_up") == 1
        assert busy("intake_paused") == 0
        gate.set()
        settled = {"name": "tasks_settled_total", "outcome": "complete"}
        done = await scraped_until(daemon.metrics, lambda now: now(**settled) == 2)
    assert done("messages_taken_total") == 7
    assert done("duplicates_dropped_total") == 1
    assert done("tasks_enqueued_total") == 5
    assert [done("tasks_buried_total", at=at) for at in ("intake", "worker")] == [1, 3]
    assert done("enqueue_batch_messages_sum") == 7
    assert [done("tasks_claimed_total", pool=pool) for pool in POOLS] == [3, 3]
    # A task's first claim alone; what comes again has not been waiting for a worker.
    assert [done("task_waiting_seconds_count", pool=pool) for pool in POOLS] == [2, 3]
    assert done("tasks_settled_total", type="waits", outcome="complete") == 2
    assert done("tasks_settled_total", type="fails", outcome="retry") == 1
    for type_ in ("fails", "dies", "other"):
        assert done("tasks_settled_total", type=type_, outcome="bury") == 1
    assert done("tasks_retried_total") == 1
    handled = [done("task_handling_seconds_count", type=type_) for type_ in ("fails", "other")]
    assert handled == [2, 0]  # no handler is there for the other one
    assert done("exchange_batch_tasks_sum", pool="grouped") == 6  # each claimed, and settled
    assert done("script_seconds_count", verb="enqueue") >= 1
    assert done("scripts_failed_total") == done("claims_lost_total") == 0


async def test_a_pause_has_its_reason(settings: Settings) -> None:
    redis = settings.redis.model_copy(update={"max_waiting": 1})
    few = settings.model_copy(update={"redis": redis})
    async with serving(few, App(), only="intake") as daemon:
        await publish(few, Outgoing(b"{}", "t"), Outgoing(b"{}", "t"))
        paused = await scraped_until(daemon.metrics, lambda now: now("intake_paused") == 1)
        assert paused("intake_paused", reason="waiting") == 1
        assert not paused.has("workers")


def metrics_of(client: StoreClient, measures: Measures | None = None) -> Metrics:
    vitals = Vitals({}, {}, 1.0, None, 0)
    namespace, counted = Namespace([client]), measures or Measures((), POOLS)
    return Metrics(counted, lambda: vitals, namespace, lease=8, lag=LoopLag())


async def test_a_scrape_goes_on_without_redis(tmp_path: Path, monkeypatch: Any) -> None:
    """With the figures that were last read; without those that never were."""
    never = await Scrape.of(metrics_of(StoreClient("redis://127.0.0.1:1/0", Keys("nobody"))))
    assert never("store_up") == 0
    assert not never.has("cluster_tasks")
    assert not never.has("store_read_age_seconds")
    monkeypatch.setattr("groupflow.ops.metrics.FRESH", 0.0)
    async with RedisServer(tmp_path) as server:
        bench = Bench(server.url)
        daemon = await bench.daemon()
        await bench.enqueue(arrival("a"), arrival("b"))
        await daemon.complete(await daemon.claim_one("plain"))
        client = StoreClient(server.url, bench.keys)
        metrics = metrics_of(client)
        before = await Scrape.of(metrics)
        assert (before("store_up"), before("cluster_tasks", pool="plain", state="queued")) == (1, 1)
        assert not before.has("broker_up")
        await server.pause()
        try:
            with monkeypatch.context() as haste:
                haste.setattr("groupflow.ops.metrics.READING", 0.2)
                frozen, twice = await asyncio.gather(Scrape.of(metrics), Scrape.of(metrics))
        finally:
            await server.resume()
        for away in (frozen, twice):
            assert away("store_up") == 0
            assert away("cluster_tasks", pool="plain", state="queued") == 1
            assert away("store_read_age_seconds") > 0
        assert (await Scrape.of(metrics))("store_up") == 1
        bench.raw.hset(bench.keys("daemon", daemon.name), "info", "[]")
        assert (await Scrape.of(metrics))("store_up") == 0, "another program wrote to our keys"
        await server.kill()
        assert (await Scrape.of(metrics))("store_up") == 0
        await client.close()
        await server.restart()
        await bench.close()


async def test_the_store_is_asked_once_for_many_scrapes(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr("groupflow.ops.metrics.FRESH", deadline())
    measures = Measures()
    client = StoreClient(bench.url, bench.keys, measures=measures.scripts)
    metrics = metrics_of(client, measures)
    await asyncio.gather(*(metrics.render() for _ in range(10)))
    assert (await Scrape.of(metrics))("script_seconds_count", verb="status") == 1
    await client.close()


async def test_each_partition_tells_of_itself(redis_server: RedisServer, monkeypatch: Any) -> None:
    """One that goes away keeps its last figures in the sums; a single one has no number."""
    monkeypatch.setattr("groupflow.ops.metrics.FRESH", 0.0)
    async with Spread(redis_server.url, 3) as spread:
        single = await Scrape.of(StoreMetrics(Namespace([spread.benches[0].client])))
        assert not single.has("partition_up")
        assert not single.has("cluster_partition_tasks")
        await spread.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(30)))
        clients = [*spread.namespace.clients]
        namespace = Namespace(clients)
        metrics = StoreMetrics(namespace)
        found = await Scrape.of(metrics)
        assert [found("partition_up", partition=str(n)) for n in range(3)] == [1, 1, 1]
        waiting = [found("cluster_partition_tasks", partition=str(n)) for n in range(3)]
        assert sum(waiting) == found("cluster_tasks", state="queued") == 30
        clients[1] = spread.without(1).clients[1]
        found = await Scrape.of(metrics)
        assert [found("partition_up", partition=str(n)) for n in range(3)] == [1, 0, 1]
        assert found("store_up") == 1
        assert found("cluster_tasks", state="queued") == 30
        assert found("store_read_age_seconds") > 0
        ready = await check_store(namespace)
        assert ready.verdict == "warn"
        assert ready.found.startswith("partition 1 is away: Redis at")
        clients[:] = spread.without(0, 1, 2).clients
        assert (await Scrape.of(metrics))("store_up") == 0
        assert (await check_store(namespace)).verdict == "fail"


def test_buckets_are_inclusive_and_the_last_is_open() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 2, 99):
        histogram.observe(value)
    assert (histogram.counts, histogram.sum) == ([2, 2, 1], 104)


async def test_a_blocked_loop_is_seen() -> None:
    lag = LoopLag()
    looking = asyncio.create_task(lag.run_once(0.0))
    await turns()
    block = asyncio.get_running_loop().time() + 0.05
    while asyncio.get_running_loop().time() < block:
        pass
    await looking
    assert lag.worst >= 0.05


async def test_what_full_groups_refused_is_counted_by_rule_and_told_once(bench: Bench) -> None:
    """A call that is made again counts nothing twice; the log has a line a rule and ten seconds."""
    measures, groups, fulls = Measures((), POOLS), iter("abc"), FullGroups()
    clock = iter((0.0, 9.0, 10.0))
    with capture_logs() as logs, patch("groupflow.flow.counting.monotonic", lambda: next(clock)):
        for group in groups:
            arrivals = [replace(arrival(f"{group}{n}", group), max_queued=1) for n in range(3)]
            for _ in range(1 if group < "c" else 2):
                enqueued = await bench.enqueuer.enqueue(arrivals)
                count_batch(measures.intake, arrivals, enqueued)
                fulls.tell(arrivals, enqueued)
    assert [(each["log_level"], each["event"]) for each in logs] == [("warning", "group.full")] * 2
    assert [(each["refused"], each["group"]) for each in logs] == [(2, "a"), (4, "c")]
    families = {family.name: family for family in from_measures(measures)}
    [sample] = families["groupflow_group_full"].samples
    assert (sample.labels, sample.value) == ({"rule": "rule"}, 6)
    buried = families["groupflow_tasks_buried"].samples
    assert {each.labels["at"]: each.value for each in buried}["intake"] == 6
    bench.events.clear()


async def test_what_newer_tasks_replaced_is_counted_where_it_happened(bench: Bench) -> None:
    """By intake and by a retry that gives way; a call that is made again counts nothing twice."""
    measures = Measures((), POOLS)
    arrivals = [made("c1^"), made("c2^")]
    for _ in range(2):
        count_batch(measures.intake, arrivals, await bench.enqueuer.enqueue(arrivals))
    await pass_time(bench)
    daemon = await bench.daemon()
    [claim] = (await daemon.claims("grouped").exchange([], ["w1"])).claims
    await bench.enqueuer.enqueue([made("c3^")])
    for number in (1, 0):
        answer = await daemon.claims("grouped").exchange([retry(claim)], [])
        assert (answer.refused, answer.superseded) == ([], number)
        measures.pools["grouped"].superseded += answer.superseded
    families = {family.name: family for family in from_measures(measures)}
    assert families["groupflow_superseded"].samples[0].value == 2
    bench.events.clear()
