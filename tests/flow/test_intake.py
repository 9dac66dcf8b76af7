"""Intake on real servers: how it holds back, and that nothing is lost or reordered by it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import orjson
import pytest
from structlog.testing import capture_logs

from groupflow.broker.consumer import Delivery
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.flow.admission import Admission
from groupflow.flow.backpressure import Backpressure
from groupflow.flow.entrance import Entrance, PartitionEntrance
from groupflow.flow.intake import LARGE_BODY, TURN_BYTES, Intake
from groupflow.operate.namespace import Namespace
from groupflow.operate.tasks import find_task
from groupflow.operate.totals import read_totals
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.rules import GroupRule
from groupflow.settings.types import SecretUrl
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.keys import Keys
from groupflow.store.sessions import Session, Sessions
from groupflow.store.settlements import Complete

SETTINGS = Settings(groups=(GroupRule(key="g"),))


@pytest.fixture
async def client(redis_server: Any) -> AsyncIterator[StoreClient]:
    keys = Keys(f"intake-{uuid4().hex}")
    client = StoreClient(redis_server.url, keys)
    yield client
    await client.close()


def intake_of(
    client: StoreClient, url: str, queue: str, *, max_in_flight: int, backpressure: Backpressure
) -> Intake:
    admission = Admission(SETTINGS.router(), max_body=10**8, step_aside=frozenset())
    section = RabbitMQ(url=SecretUrl(url), queue=queue, max_in_flight=max_in_flight)
    entrance = Entrance([PartitionEntrance(Enqueuer(client), backpressure)])
    return Intake(Settings(rabbitmq=section), "test", admission, entrance)


async def until_taken(client: StoreClient, number: int) -> None:
    while (await read_totals(Namespace([client]))).queued_grouped < number:
        await asyncio.sleep(0.02)


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


async def publish(url: str, queue: str, number: int, size: int) -> None:
    bodies = [orjson.dumps({"n": n, "type": "t", "x": "y" * size}) for n in range(number)]
    async with publishing(url, queue) as publisher:
        assert await publisher.publish_all(Outgoing(body) for body in bodies) == number


async def test_bodies_in_flight_are_bounded_and_none_is_lost_or_moved(
    client: StoreClient, rabbitmq_server: Any
) -> None:
    queue = f"intake-{uuid4().hex}"
    await publish(rabbitmq_server.url, queue, 60, 50_000)
    backpressure = Backpressure(client, max_waiting=10**6, max_memory=0)
    intake = intake_of(
        client, rabbitmq_server.url, queue, max_in_flight=200_000, backpressure=backpressure
    )
    with capture_logs() as logs:
        running = asyncio.create_task(intake.run())
        await until_taken(client, 60)
        intake.stop()
        await running
    prefetches = [log["prefetch"] for log in logs if log["event"] == "intake.started"]
    assert prefetches[0] == 500
    assert prefetches[-1] < 500, "it never had to take fewer at once: the test proves nothing"
    assert await order_of(client, 60) == list(range(60))


async def test_a_flood_of_headers_leaves_the_loop_to_others(
    client: StoreClient, rabbitmq_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 messages with 64 KiB of two bytes that aren't UTF-8 stopped everything else for 5 s."""
    queue, number, size = f"intake-{uuid4().hex}", 150, 60_000
    headers = {"x": bytearray(b"\xff\xc3" * (size // 2))}
    async with publishing(rabbitmq_server.url, queue) as publisher:
        flood = (Outgoing(b'{"type": "t"}', headers=headers) for _ in range(number))
        assert await publisher.publish_all(flood) == number
    turn, admitted = 0, Counter[int]()
    admit = Admission.admit

    def spy(admission: Admission, delivery: Delivery) -> Arrival:
        admitted[turn] += delivery.weight
        return admit(admission, delivery)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Admission, "admit", spy)
    backpressure = Backpressure(client, max_waiting=10**6, max_memory=0)
    intake = intake_of(
        client, rabbitmq_server.url, queue, max_in_flight=10**9, backpressure=backpressure
    )
    turning = asyncio.create_task(count_turns())
    running = asyncio.create_task(intake.run())
    await until_taken(client, number)
    intake.stop()
    await running
    turning.cancel()
    assert sum(admitted.values()) >= number * size, "headers aren't counted"
    assert max(admitted.values()) < TURN_BYTES + 2 * size, "the loop didn't turn"


async def test_large_bodies_are_parsed_off_the_loop_and_stay_in_order(
    client: StoreClient, rabbitmq_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where handlers hold every thread that the loop has for its guests."""
    freed, loop = threading.Event(), asyncio.get_running_loop()
    guests = ThreadPoolExecutor(1)
    loop.set_default_executor(guests)
    held = asyncio.create_task(asyncio.to_thread(freed.wait))
    queue, sizes = f"intake-{uuid4().hex}", [10, LARGE_BODY + 1, 10, LARGE_BODY * 2, 10]
    async with publishing(rabbitmq_server.url, queue) as publisher:
        bodies = [orjson.dumps({"n": n, "type": "t", "x": "y" * s}) for n, s in enumerate(sizes)]
        await publisher.publish_all(Outgoing(body) for body in bodies)
    on_loop: dict[int, bool] = {}
    admit = Admission.admit

    def spy(admission: Admission, delivery: Delivery) -> Arrival:
        is_main = threading.current_thread() is threading.main_thread()
        on_loop[orjson.loads(delivery.body)["n"]] = is_main
        return admit(admission, delivery)

    monkeypatch.setattr(Admission, "admit", spy)
    backpressure = Backpressure(client, max_waiting=10**6, max_memory=0)
    intake = intake_of(
        client, rabbitmq_server.url, queue, max_in_flight=10**9, backpressure=backpressure
    )
    running = asyncio.create_task(intake.run())
    try:
        await until_taken(client, len(sizes))
    finally:
        freed.set()
    await held
    intake.stop()
    await running
    assert on_loop == {0: True, 1: False, 2: True, 3: False, 4: True}
    assert await order_of(client, len(sizes)) == list(range(len(sizes)))


async def test_a_message_whose_id_is_anothers_is_a_task_and_said_so(
    client: StoreClient, rabbitmq_server: Any
) -> None:
    """Garbage came under its id before; both come again, as after a lost connection."""
    queue = f"intake-{uuid4().hex}"
    real = orjson.dumps({"n": 7, "type": "t", "app_name": "crm", "tenant_id": 42})
    sent = [Outgoing(b"\xff", message_id="order-1"), Outgoing(real, message_id="order-1")]
    async with publishing(rabbitmq_server.url, queue) as publisher:
        assert await publisher.publish_all([*sent, *sent, Outgoing(real)]) == 5
    backpressure = Backpressure(client, max_waiting=10**6, max_memory=0)
    intake = intake_of(
        client, rabbitmq_server.url, queue, max_in_flight=10**6, backpressure=backpressure
    )
    with capture_logs() as logs:
        running = asyncio.create_task(intake.run())
        await until_taken(client, 2)
        intake.stop()
        await running
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
    queue = f"intake-{uuid4().hex}"
    backpressure = Backpressure(client, max_waiting=10, max_memory=0)
    intake = intake_of(
        client, rabbitmq_server.url, queue, max_in_flight=10**9, backpressure=backpressure
    )
    await publish(rabbitmq_server.url, queue, 1200, 10)
    with capture_logs() as logs:
        running = asyncio.create_task(intake.run())
        await until_taken(client, 10)
        while not any(log["event"] == "intake.paused" for log in logs):
            await asyncio.sleep(0.01)
        held = (await read_totals(Namespace([client]))).queued_grouped
        assert held < 1200, "it took everything in spite of the limit"
        order = await order_of(client, held)
        await until_taken(client, 1)
        intake.stop()
        await running
    assert order == list(range(held))
    assert any(log["event"] == "intake.resumed" for log in logs)


async def test_memory_is_a_reason_until_it_is_well_below(client: StoreClient) -> None:
    used = int((await client.info("memory"))["used_memory"])
    tight = Backpressure(client, max_waiting=10, max_memory=used // 2)
    assert "redis.max_memory" in await tight.reason(0)
    roomy = Backpressure(client, max_waiting=10, max_memory=used * 10)
    assert await roomy.reason(9) == ""
    assert "redis.max_waiting" in await roomy.reason(10)
    assert await roomy.reason(9) != "", "a pause ended right where it began"
    assert await roomy.reason(8) == ""
