"""Intake on real servers: how it holds back, and that nothing is lost or reordered by it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import orjson
import pytest
from structlog.testing import capture_logs

from groupflow.broker import topology
from groupflow.broker.consumer import Delivery
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.measures import IntakeMeasures
from groupflow.flow.admission import Admission
from groupflow.flow.backpressure import Backpressure, IntakeState
from groupflow.flow.entrance import Entrance, PartitionEntrance
from groupflow.flow.intake import LARGE_BODY, TURN_BYTES, Intake, IntakeQueue
from groupflow.servers import RabbitmqServer
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.rules import GroupRule
from groupflow.settings.urls import SecretUrl
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer
from groupflow.store.wire import ReplicaWait
from tests.broker.wires import waiting_in
from tests.deadlines import until
from tests.store.bench import Bench
from tests.store.task_state import found
from tests.turns import CountedTurns

SETTINGS = Settings(groups=(GroupRule(key="g"),))


class Told(Enqueuer):
    """Counts what is written."""

    written = 0

    async def enqueue(self, arrivals: Sequence[Arrival], *more: Any) -> Enqueued:
        found = await super().enqueue(arrivals, *more)
        self.written += len(arrivals)
        return found

    async def until(self, number: int) -> None:
        await until(lambda: self.written >= number)


class World:
    """A queue of RabbitMQ, and an intake that takes from it into one partition."""

    def __init__(self, bench: Bench, url: str) -> None:
        self.bench, self.url, self.queue = bench, url, f"intake-{uuid4().hex}"

    async def publish(self, messages: Iterable[Outgoing]) -> None:
        sent = list(messages)
        async with publishing(self.url, self.queue) as publisher:
            assert await publisher.publish_all(sent) == len(sent)

    @asynccontextmanager
    async def taking_in(
        self, max_waiting: int = 10**6, replicas: int = 0, **settings: Any
    ) -> AsyncIterator[Told]:
        """An intake of this queue, that is stopped at the end."""
        admission = Admission(SETTINGS.router(), max_body=10**8, step_aside=frozenset())
        section = RabbitMQ(url=SecretUrl(self.url), queue=self.queue, **settings)
        client = self.bench.client
        enqueuer = Told(client, replica_wait=ReplicaWait(replicas, 0.05) if replicas else None)
        backpressure = Backpressure(client, max_waiting=max_waiting, max_memory=0)
        entrance = Entrance([PartitionEntrance(enqueuer, backpressure)])
        source = IntakeQueue(self.queue, declare=lambda each: topology.declare(each, self.queue))
        measures = IntakeMeasures()
        with ThreadPoolExecutor(1) as parsing:
            intake = Intake(
                Settings(rabbitmq=section),
                "test",
                admission,
                entrance,
                source=source,
                measures=measures,
                tracing=None,
                state=IntakeState(measures, lambda: None, [self.queue]),
                parsing=parsing,
            )
            running = asyncio.create_task(intake.run())
            try:
                yield enqueuer
            finally:
                intake.stop()
                await running

    async def order(self, number: int) -> list[int]:
        """Drain the one group; the numbers that messages have as ids, as they come."""
        daemon, order = await self.bench.daemon(), list[int]()
        for _ in range(number):
            claim = await daemon.claim_one()
            assert not claim.apart or await claim.fetch()
            assert claim.task.json()["n"] == int(claim.task.id)
            order.append(int(claim.task.id))
            await daemon.complete(claim)
        return order


@pytest.fixture
def world(bench: Bench, rabbitmq_server: RabbitmqServer) -> World:
    return World(bench, rabbitmq_server.url)


def numbered(*sizes: int) -> Iterable[Outgoing]:
    """Messages with a number and so many bytes."""
    for n, size in enumerate(sizes):
        yield Outgoing(orjson.dumps({"n": n, "x": "y" * size}), "t", str(n))


async def test_bodies_in_flight_are_bounded(world: World) -> None:
    await world.publish(numbered(*[50_000] * 60))
    with capture_logs() as logs:
        async with world.taking_in(max_in_flight=200_000) as enqueuer:
            await enqueuer.until(60)
    prefetches = [log["prefetch"] for log in logs if log["event"] == "intake.started"]
    assert prefetches[0] == 500
    assert prefetches[-1] < 500, "it never had to take fewer at once: the test proves nothing"
    assert await world.order(60) == list(range(60))


async def test_headers_leave_the_loop_free(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 messages with 64 KiB of two bytes that aren't UTF-8 stopped everything else for 5 s."""
    number, size = 150, 60_000
    headers = {"x": bytearray(b"\xff\xc3" * (size // 2))}
    await world.publish([Outgoing(b'{"type": "t"}', headers=headers)] * number)
    turns, admitted, admit = CountedTurns(), Counter[int](), Admission.admit

    def spy(admission: Admission, delivery: Delivery) -> Arrival:
        admitted[turns.number] += delivery.weight
        return admit(admission, delivery)

    monkeypatch.setattr(Admission, "admit", spy)
    async with world.taking_in() as enqueuer:
        await enqueuer.until(number)
    assert sum(admitted.values()) >= number * size, "headers aren't counted"
    assert max(admitted.values()) < TURN_BYTES + 2 * size, "the loop didn't turn"


async def test_large_bodies_go_off_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where handlers hold every thread that the loop has for its guests."""
    freed, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    held = asyncio.create_task(asyncio.to_thread(freed.wait))
    sizes = [10, LARGE_BODY + 1, 10, LARGE_BODY * 2, 10]
    await world.publish(numbered(*sizes))
    on_loop, admit = dict[int, bool](), Admission.admit

    def spy(admission: Admission, delivery: Delivery) -> Arrival:
        is_main = threading.current_thread() is threading.main_thread()
        on_loop[orjson.loads(delivery.body)["n"]] = is_main
        return admit(admission, delivery)

    monkeypatch.setattr(Admission, "admit", spy)
    async with world.taking_in() as enqueuer:
        try:
            await enqueuer.until(len(sizes))
        finally:
            freed.set()
    await held
    assert on_loop == {0: True, 1: False, 2: True, 3: False, 4: True}
    assert await world.order(len(sizes)) == list(range(len(sizes)))


async def test_large_bodies_come_in_where_no_thread_starts(world: World) -> None:
    """The process is at its limit: that ends no daemon."""
    sizes = [10, LARGE_BODY + 1, LARGE_BODY * 2, 10]
    await world.publish(numbered(*sizes))
    refused = RuntimeError("can't start new thread")
    with patch.object(threading.Thread, "start", side_effect=refused):
        async with world.taking_in() as enqueuer:
            await enqueuer.until(len(sizes))
    assert await world.order(len(sizes)) == list(range(len(sizes)))


async def test_an_id_of_anothers_is_told(world: World) -> None:
    """Garbage came under its id before; both come again, as after a lost connection."""
    real = orjson.dumps({"n": 7, "type": "t", "app_name": "crm", "tenant_id": 42})
    sent = [Outgoing(b"\xff", message_id="order-1"), Outgoing(real, message_id="order-1")]
    await world.publish([*sent, *sent, Outgoing(real)])
    with capture_logs() as logs:
        async with world.taking_in() as enqueuer:
            await enqueuer.until(5)
    (said,) = [log for log in logs if log["event"] == "message.renamed"]
    assert said["message"] == "order-1"
    assert said["task"].startswith("order-1~")
    assert [log["task"] for log in logs if log["event"] == "task.buried"] == ["order-1"]
    assert len([log for log in logs if log["event"] == "message.duplicate"]) == 2
    task = await found(world.bench, said["task"])
    assert (task.state, task.tenant) == ("queued", "42")


async def test_intake_stands_without_a_replica(world: World) -> None:
    """What waits for one is acked once that has it, and not written again."""
    await world.publish(numbered(10, 10, 10))
    with capture_logs() as logs:
        async with world.taking_in(replicas=1) as enqueuer:
            await until(lambda: any(log["event"] == "intake.paused" for log in logs))
            assert await waiting_in(world.url, world.queue) == 0  # all are in hand, unacked
            assert enqueuer.written == 0
            enqueuer._replica_wait = ReplicaWait(0, 0.05)  # as if one had come
            await enqueuer.until(3)
    (paused,) = [log for log in logs if log["event"] == "intake.paused"]
    assert paused["reason"] == "too few replicas"
    assert "redis.replicas is 1" in paused["error"]
    assert world.bench.count("duplicates") == 0
    assert await world.order(3) == [0, 1, 2]
    assert await waiting_in(world.url, world.queue) == 0


async def test_intake_pauses_at_a_backlog(world: World) -> None:
    await world.publish(numbered(*[10] * 1200))
    with capture_logs() as logs:
        async with world.taking_in(max_waiting=10) as enqueuer:
            await enqueuer.until(10)
            await until(lambda: any(log["event"] == "intake.paused" for log in logs))
            held = (await world.bench.status()).queued_grouped
            assert held < 1200, "it took everything in spite of the limit"
            order = await world.order(held)
            await enqueuer.until(held + 1)
    assert order == list(range(held))
    assert any(log["event"] == "intake.resumed" for log in logs)
