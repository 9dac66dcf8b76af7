"""What a publisher requests is answered by the end of its task; events go where they are bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from groupflow import (
    GroupflowError,
    Message,
    Publisher,
    ResultRefused,
    TaskCancelled,
    TaskDead,
    TaskDropped,
    TaskExpired,
    TaskNotDone,
    TaskSuperseded,
)
from groupflow.broker.events import EventPublisher, EventsRefused, Published
from groupflow.broker.replies import result_of
from groupflow.core.events import Told
from tests.broker.wires import connected, make_queue, proxied, taken
from tests.deadlines import deadline


def told(number: int = 1, **facts: Any) -> Told:
    return Told(number, {"event": "done", "id": f"t{number}", **facts})


@asynccontextmanager
async def answering(url: str, queue: str) -> AsyncIterator[None]:
    """A daemon in short: each message is answered, with its own body as the result."""
    events = EventPublisher(url, "", "test")

    async def answer() -> None:
        while True:
            [delivery] = await taken(url, queue, 1)
            body = orjson.loads(delivery.body)
            event = told(
                reply_to=delivery.reply_to,
                correlation_id=delivery.correlation_id,
                **{"result": body, **body.get("instead", {})},
            )
            await events.publish([event], frozenset(), Published())

    answering = asyncio.create_task(answer())
    try:
        yield
    finally:
        answering.cancel()
        await events.close()


async def test_requests_share_a_queue_and_get_their_own_answers(
    rabbitmq_server: Any, queue: str
) -> None:
    """Many at once; a message goes as a body does; and over a connection that was cut."""
    await make_queue(rabbitmq_server.url, queue)
    async with (
        proxied(rabbitmq_server) as (proxy, url),
        answering(rabbitmq_server.url, queue),
        Publisher(url, queue) as publisher,
    ):
        asking = [publisher.request({"n": n}, type="t") for n in range(5)]
        assert await asyncio.gather(*asking) == [{"n": n} for n in range(5)]
        name = publisher._replies._queue
        assert name.startswith("amq.")
        proxy.cut()
        assert await publisher.request(Message({"n": 9}, type="t"), timeout=deadline()) == {"n": 9}
        assert publisher._replies._queue == name
        sync = publisher.sync()
        asked = asyncio.to_thread(sync.request, {"n": 10}, type="t", timeout=deadline())
        assert await asked == {"n": 10}
        await asyncio.to_thread(sync.close)
        dead = {"instead": {"event": "dead", "reason": "no such table"}}
        with pytest.raises(TaskDead, match="no such table"):
            await publisher.request(dead, type="t", timeout=deadline())
    with pytest.raises(GroupflowError, match="the publisher is closed"):
        await publisher.request({"n": 1}, type="t")


async def test_what_is_not_answered_in_time_says_so(rabbitmq_server: Any, queue: str) -> None:
    """The task stays published."""
    await make_queue(rabbitmq_server.url, queue)
    async with Publisher(rabbitmq_server.url, queue) as publisher:
        with pytest.raises(TimeoutError):
            await publisher.request({"n": 1}, type="t", timeout=0.5)
        assert publisher._replies._waiting == {}
    assert len(await taken(rabbitmq_server.url, queue, 1)) == 1


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("dead", TaskDead),
        ("cancelled", TaskCancelled),
        ("expired", TaskExpired),
        ("superseded", TaskSuperseded),
        ("dropped", TaskDropped),
        ("something new", TaskNotDone),
    ],
)
def test_each_other_end_is_an_error_of_its_own(event: str, error: type[TaskNotDone]) -> None:
    """It says which task, how it ended and why."""
    with pytest.raises(error, match=f"'t1' is {event}: because") as raised:
        result_of({"event": event, "id": "t1", "reason": "because"})
    assert type(raised.value) is error


def test_a_result_that_could_not_be_told_is_none_of_ours() -> None:
    """The task is done, and that must not pass for a result."""
    assert result_of({"event": "done", "id": "t1", "result": None}) is None
    with pytest.raises(ResultRefused, match="'t1' is done, but the result has 70000 bytes"):
        result_of({"event": "done", "id": "t1", "result_error": "the result has 70000 bytes"})


async def test_events_go_where_they_are_bound(rabbitmq_server: Any, queue: str) -> None:
    """By their routing key; one without a queue is dropped and counted; a reply needs no queue."""
    exchange = f"{queue}.events"
    publisher, published = EventPublisher(rabbitmq_server.url, exchange, "test"), Published()
    events = [
        told(1, app="crm", tenant="4.2", type="import.rows", group="g", result={"a": 1}),
        told(2, event="dead", reply_to=f"{queue}.gone", correlation_id="\ufffd" + "ff" * 255),
        told(3, event="dropped", type="x"),
    ]
    async with connected(rabbitmq_server.url) as connection:
        channel = await connection.channel()
        topic = await channel.declare_exchange(exchange, "topic", durable=True)
        await (await channel.declare_queue(queue)).bind(topic, "done.#")
        try:
            await publisher.publish(events, frozenset({"done", "dead"}), published)
            [delivery] = await taken(rabbitmq_server.url, queue, 1)
        finally:
            await publisher.close()
            await channel.exchange_delete(exchange)
    body = orjson.loads(delivery.body)
    assert (body["event"], body["result"], body["seq"], body["group"]) == ("done", {"a": 1}, 1, "g")
    assert (delivery.message_id, delivery.type) == ("t1/done", "done")
    assert (published.first, published.events, published.unrouted) == (3, 2, 1)
    assert published.replies == 1


async def test_an_exchange_of_another_kind_is_refused(rabbitmq_server: Any, queue: str) -> None:
    """It is named; nothing counts as published."""
    publisher, published = EventPublisher(rabbitmq_server.url, "amq.fanout", "test"), Published()
    with pytest.raises(EventsRefused, match=r"no durable topic exchange 'amq\.fanout'"):
        await publisher.publish([told()], frozenset({"done"}), published)
    await publisher.close()
    assert published.first == 0
