"""Intake on real servers: how it holds back, and that nothing is lost or reordered by it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
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
from groupflow.operate.namespace import Namespace
from groupflow.operate.tasks import find_task
from groupflow.operate.totals import read_totals
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.rules import GroupRule
from groupflow.settings.urls import SecretUrl
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer
from groupflow.store.keys import Keys
from groupflow.store.sessions import Session, Sessions
from groupflow.store.settlements import Complete
from tests.deadlines import deadline

SETTINGS = Settings(groups=(GroupRule(key="g"),))


@pytest.fixture
async def client(redis_server: Any) -> AsyncIterator[StoreClient]:
    keys = Keys(f"intake-{uuid4().hex}")
    client = StoreClient(redis_server.url, keys)
    yield client
    await client.close()


class Told(Enqueuer):
    """Tells of each batch that is written."""

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client)
        self.written, self.news = 0, asyncio.Event()

    async def enqueue(self, arrivals: Sequence[Arrival], delayed_memory: int = 10**9) -> Enqueued:
        found = await super().enqueue(arrivals, delayed_memory)
        self.written += len(arrivals)
        self.news.set()
        return found

    async def until(self, number: int) -> None:
        async with asyncio.timeout(deadline()):
            while self.written < number:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def taking_in(
    client: StoreClient,
    url: str,
    queue: str,
    *,
    max_in_flight: int = 10**9,
    max_waiting: int = 10**6,
) -> AsyncIterator[Told]:
    """An intake of this queue, that is stopped at the end."""
    admission = Admission(SETTINGS.router(), max_body=10**8, step_aside=frozenset())
    section = RabbitMQ(url=SecretUrl(url), queue=queue, max_in_flight=max_in_flight)
    backpressure = Backpressure(client, max_waiting=max_waiting, max_memory=0)
    enqueuer = Told(client)
    entrance = Entrance([PartitionEntrance(enqueuer, backpressure)])
    measures = IntakeMeasures()
    with ThreadPoolExecutor(1) as parsing:
        intake = Intake(
            Settings(rabbitmq=section),
            "test",
            admission,
            entrance,
            source=IntakeQueue(queue, declare=lambda c: topology.declare(c, queue)),
            measures=measures,
            tracing=None,
            state=IntakeState(measures, lambda: None, [queue]),
            parsing=parsing,
        )
        running = asyncio.create_task(intake.run())
        try:
            yield enqueuer
        finally:
            intake.stop()
            await running


async def order_of(client: StoreClient, number: int) -> list[int]:
    """Drain the one group; the numbers in the bodies, as they come."""
    session = Session("d")
    await Sessions(client, session, 60.0).register({})
    claims = Claims(client, session, "grouped")
    order: list[int] = []
    finished: list[Complete] = []
    for _ in range(number):
        given = (await claims.exchange(finished, ["w"])).claims
        assert not given[0].apart or await given[0].fetch()
        order.append(given[0].task.json()["n"])
        finished = [Complete(given[0])]
    return order


async def publish(url: str, messages: Iterable[Outgoing]) -> str:
    """A queue with these messages."""
    queue, sent = f"intake-{uuid4().hex}", list(messages)
    async with publishing(url, queue) as publisher:
        assert await publisher.publish_all(sent) == len(sent)
    return queue


def numbered(*sizes: int) -> Iterable[Outgoing]:
    """Messages with a number and so many bytes."""
    for n, size in enumerate(sizes):
        yield Outgoing(orjson.dumps({"n": n, "type": "t", "x": "y" * size}))


async def test_bodies_in_flight_are_bounded_and_none_is_lost_or_moved(
    client: StoreClient, rabbitmq_server: Any
) -> None:
    url = rabbitmq_server.url
    queue = await publish(url, numbered(*[50_000] * 60))
    with capture_logs() as logs:
        async with taking_in(client, url, queue, max_in_flight=200_000) as enqueuer:
            await enqueuer.until(60)
    prefetches = [log["prefetch"] for log in logs if log["event"] == "intake.started"]
    assert prefetches[0] == 500
    assert prefetches[-1] < 500, "it never had to take fewer at once: the test proves nothing"
    assert await order_of(client, 60) == list(range(60))


async def test_a_flood_of_headers_leaves_the_loop_to_others(
    client: StoreClient, rabbitmq_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 messages with 64 KiB of two bytes that aren't UTF-8 stopped everything else for 5 s."""
    url, number, size = rabbitmq_server.url, 150, 60_000
    headers = {"x": bytearray(b"\xff\xc3" * (size // 2))}
    queue = await publish(url, [Outgoing(b'{"type": "t"}', headers=headers)] * number)
    turn, admitted, admit = 0, Counter[int](), Admission.admit
    loop = asyncio.get_running_loop()

    def spy(admission: Admission, delivery: Delivery) -> Arrival:
        admitted[turn] += delivery.weight
        return admit(admission, delivery)

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        if turn > 0:
            loop.call_soon(count_turns)

    monkeypatch.setattr(Admission, "admit", spy)
    count_turns()
    async with taking_in(client, url, queue) as enqueuer:
        await enqueuer.until(number)
    turn = -2
    assert sum(admitted.values()) >= number * size, "headers aren't counted"
    assert max(admitted.values()) < TURN_BYTES + 2 * size, "the loop didn't turn"


async def test_large_bodies_are_parsed_off_the_loop_and_stay_in_order(
    client: StoreClient, rabbitmq_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where handlers hold every thread that the loop has for its guests."""
    freed, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    held = asyncio.create_task(asyncio.to_thread(freed.wait))
    url, sizes = rabbitmq_server.url, [10, LARGE_BODY + 1, 10, LARGE_BODY * 2, 10]
    queue = await publish(url, numbered(*sizes))
    on_loop, admit = dict[int, bool](), Admission.admit

    def spy(admission: Admission, delivery: Delivery) -> Arrival:
        is_main = threading.current_thread() is threading.main_thread()
        on_loop[orjson.loads(delivery.body)["n"]] = is_main
        return admit(admission, delivery)

    monkeypatch.setattr(Admission, "admit", spy)
    async with taking_in(client, url, queue) as enqueuer:
        try:
            await enqueuer.until(len(sizes))
        finally:
            freed.set()
    await held
    assert on_loop == {0: True, 1: False, 2: True, 3: False, 4: True}
    assert await order_of(client, len(sizes)) == list(range(len(sizes)))


async def test_a_message_whose_id_is_anothers_is_a_task_and_said_so(
    client: StoreClient, rabbitmq_server: Any
) -> None:
    """Garbage came under its id before; both come again, as after a lost connection."""
    url = rabbitmq_server.url
    real = orjson.dumps({"n": 7, "type": "t", "app_name": "crm", "tenant_id": 42})
    sent = [Outgoing(b"\xff", message_id="order-1"), Outgoing(real, message_id="order-1")]
    queue = await publish(url, [*sent, *sent, Outgoing(real)])
    with capture_logs() as logs:
        async with taking_in(client, url, queue) as enqueuer:
            await enqueuer.until(5)
    (said,) = [log for log in logs if log["event"] == "message.renamed"]
    assert said["message"] == "order-1"
    assert said["task"].startswith("order-1~")
    assert [log["task"] for log in logs if log["event"] == "task.buried"] == ["order-1"]
    assert len([log for log in logs if log["event"] == "message.duplicate"]) == 2
    found = await find_task(client, said["task"])
    assert found is not None
    assert (found.state, found.tenant) == ("queued", "42")


async def test_intake_pauses_at_a_backlog_and_goes_on_below_it(
    client: StoreClient, rabbitmq_server: Any
) -> None:
    url = rabbitmq_server.url
    queue = await publish(url, numbered(*[10] * 1200))
    with capture_logs() as logs:
        async with taking_in(client, url, queue, max_waiting=10) as enqueuer:
            await enqueuer.until(10)
            while not any(log["event"] == "intake.paused" for log in logs):
                enqueuer.news.clear()
                await enqueuer.news.wait()
            held = (await read_totals(Namespace([client]))).queued_grouped
            assert held < 1200, "it took everything in spite of the limit"
            order = await order_of(client, held)
            await enqueuer.until(held + 1)
    assert order == list(range(held))
    assert any(log["event"] == "intake.resumed" for log in logs)
