"""What a publisher requests is answered by the end of its task; events go where they are bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from typing import Any
from unittest.mock import AsyncMock, call

import aiormq
import orjson
import pytest
from pamqp.header import ContentHeader

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
from groupflow.broker import events, replies, topology
from groupflow.broker.connection import connect, open_channel
from groupflow.broker.events import REFUSED_FOR, EventPublisher, EventsRefused, Published
from groupflow.broker.replies import result_of
from groupflow.core.errors import BrokerUnavailable
from groupflow.core.events import ENDS, Told
from tests.broker.wires import bind, connected, make_queue, proxied, taken, told_in, waiting_in
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
    """Many at once, as bodies or messages; over a connection that was cut; by a deleted queue."""
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
        channel: Any = publisher._replies._channel
        async with connected(rabbitmq_server.url) as connection:
            await topology.delete(connection, name)
        while channel.consumers:
            await asyncio.sleep(0)
        assert await publisher.request({"n": 11}, type="t", timeout=deadline()) == {"n": 11}
        dead = {"instead": {"event": "dead", "reason": "no such table"}}
        with pytest.raises(TaskDead, match="no such table"):
            await publisher.request(dead, type="t", timeout=deadline())
    with pytest.raises(GroupflowError, match="the publisher is closed"):
        await publisher.request({"n": 1}, type="t")


async def test_a_request_waits_for_rabbitmq_as_a_message_does(
    rabbitmq_server: Any, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its reply queue it failed at once."""
    has_failed, direct = asyncio.Event(), rabbitmq_server.url

    async def tried(*arguments: Any, **options: Any) -> Any:
        try:
            return await connect(*arguments, **options)
        except BrokerUnavailable:
            has_failed.set()
            raise

    monkeypatch.setattr(replies, "connect", tried)
    await make_queue(direct, queue)
    async with (
        asyncio.timeout(deadline()),
        proxied(rabbitmq_server) as (proxy, url),
        answering(direct, queue),
        Publisher(url, queue) as publisher,
    ):
        proxy.refuse(refuse=True)
        proxy.cut()
        asking = asyncio.create_task(publisher.request({"n": 1}, type="t", timeout=deadline()))
        await has_failed.wait()
        proxy.heal()
        assert await asking == {"n": 1}
        proxy.refuse(refuse=True)
        with pytest.raises(BrokerUnavailable, match=r"for 0\.3 s: .*127\.0\.0\.1"):
            await Publisher(url, queue, timeout=0.3).request({"n": 1}, type="t")


async def test_a_reply_on_its_way_is_not_lost_with_the_connection(
    rabbitmq_server: Any, queue: str
) -> None:
    direct = rabbitmq_server.url
    await make_queue(direct, queue)
    events = EventPublisher(direct, "", "test")
    async with proxied(rabbitmq_server) as (proxy, url), Publisher(url, queue) as publisher:
        asking = asyncio.create_task(publisher.request({}, type="t", timeout=deadline()))
        [asked] = await taken(direct, queue, 1)
        proxy.hold("down")
        reply = told(result=7, reply_to=asked.reply_to, correlation_id=asked.correlation_id)
        await events.publish([reply], frozenset(), Published())
        while await waiting_in(direct, asked.reply_to or ""):
            pass  # it is asked by a connection of its own each time
        proxy.cut()
        proxy.release()
        assert await asking == 7
    await events.close()


async def test_no_reply_is_kept_that_has_come() -> None:
    """Nor one that nothing waits for, or that can't be read. An ack that fails harms nothing."""
    waiting, channel = replies.Replies(""), AsyncMock()
    future = waiting.expect("a")
    for id_, body in (("a", b"no JSON"), ("a", b'{"n": 1}'), ("a", b'{"n": 2}'), ("b", b"{}")):
        properties = aiormq.spec.Basic.Properties(correlation_id=id_)
        header = ContentHeader(properties=properties)
        delivery = aiormq.spec.Basic.Deliver(delivery_tag=3)
        await waiting._on_reply(aiormq.abc.DeliveredMessage(delivery, header, body, channel))
        channel.basic_ack.side_effect = ConnectionError
    assert channel.basic_ack.await_args_list == [call(3)] * 4
    assert future.result() == {"n": 1}


async def test_what_is_not_answered_in_time_says_so(rabbitmq_server: Any, queue: str) -> None:
    """The task stays published."""
    await make_queue(rabbitmq_server.url, queue)
    async with Publisher(rabbitmq_server.url, queue) as publisher:
        with pytest.raises(TimeoutError):
            await publisher.request({"n": 1}, type="t", timeout=0.5)
        assert publisher._replies._waiting == {}
    assert len(await taken(rabbitmq_server.url, queue, 1)) == 1


async def test_a_queue_of_a_kind_that_each_rabbitmq_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 4.3 on it ends the connection for one that is neither durable nor exclusive."""
    channel = AsyncMock()
    monkeypatch.setattr(replies, "open_channel", AsyncMock(return_value=channel))
    await replies.Replies("")._consume(AsyncMock())
    assert channel.queue_declare.await_args.kwargs["durable"]


async def test_a_silent_queue_holds_up_no_later_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def says_nothing(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(replies, "connect", AsyncMock())
    monkeypatch.setattr(replies, "HANDSHAKE", 0.0)
    monkeypatch.setattr(replies.Replies, "_consume", says_nothing)
    with pytest.raises(BrokerUnavailable, match="no queue for replies: no answer in time"):
        await asyncio.wait_for(replies.Replies("").queue(), deadline(1.0))


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


async def test_a_full_queue_holds_up_only_what_it_refuses(rabbitmq_server: Any, queue: str) -> None:
    """What others took is not told to them again. A reply is given up after a while."""
    url, full = rabbitmq_server.url, f"{queue}.full"
    publisher, published = EventPublisher(url, queue, "test"), Published()
    ends = ["dead", "dead", *["done"] * 18]
    events = [told(n, event=end, group=f"{end}{n // 2}") for n, end in enumerate(ends)]
    await bind(url, queue)
    await make_queue(url, full, x_max_length=1, x_overflow="reject-publish")
    try:
        async with connected(url) as connection:
            channel = await open_channel(connection, confirms=False)
            await channel.queue_bind(full, queue, "dead.#")
        for _ in range(3):
            with pytest.raises(BrokerUnavailable, match="'t1/dead' was not confirmed"):
                await publisher.publish(events, frozenset(ENDS), published)
        assert [n for n in range(20) if n not in published.done] == [1]
        ids = [each["id"] for each in await told_in(url, queue)]
        assert sorted(ids) == sorted(["t1"] * 2 + [each.facts["id"] for each in events])
        late = told(int((time() - REFUSED_FOR) * 1e6), reply_to=full)
        await publisher.publish([late], frozenset(), Published())
        asked = told(int(time() * 1e6), reply_to=full)
        with pytest.raises(BrokerUnavailable, match=r"reply .+ was not confirmed"):
            await publisher.publish([asked], frozenset(), Published())
    finally:
        await publisher.close()
        async with connected(url) as connection:
            await topology.delete(connection, full)
            await (await connection.channel()).exchange_delete(queue)


async def test_a_reply_to_a_channel_is_sent_once(rabbitmq_server: Any, queue: str) -> None:
    """RabbitMQ ends connections for names that it never gave out: that holds up nobody else."""
    url = rabbitmq_server.url
    publisher, published = EventPublisher(url, queue, "test"), Published()
    made_up = ("amq.rabbitmq.reply-to.g1hkAA.AAAA", "amq.rabbitmq.reply-to.no")
    async with connected(url) as connection:
        channel = await open_channel(connection, confirms=False)
        answers, wanted = asyncio.Queue[Any](), asyncio.Queue[Any]()
        await channel.basic_consume("amq.rabbitmq.reply-to", answers.put, no_ack=True)
        await channel.queue_declare(queue, exclusive=True)
        await channel.basic_consume(queue, wanted.put, no_ack=True)
        asks = aiormq.spec.Basic.Properties(reply_to="amq.rabbitmq.reply-to")
        await channel.basic_publish(b"", routing_key=queue, properties=asks)
        named = (await wanted.get()).header.properties.reply_to
        events = [told(n, reply_to=name) for n, name in enumerate((*made_up, named, *made_up))]
        try:
            await publisher.publish(events, frozenset(), published)
        finally:
            await publisher.close()
        assert (await answers.get()).header.properties.message_id == "t2/done"
    assert (published.first, published.replies) == (5, 5)


async def test_a_blocked_connection_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its channel for replies was closed, and RabbitMQ opens no other before its alarm is over."""
    publisher = EventPublisher("", "", "test", timeout=0.0)
    publisher._connection, publisher._events = AsyncMock(), AsyncMock(is_closed=False)
    monkeypatch.setattr(events, "open_channel", lambda *_, **__: asyncio.Event().wait())
    with pytest.raises(BrokerUnavailable, match="no channel for replies: no answer in time"):
        await asyncio.wait_for(publisher._open(), deadline(1.0))


async def test_an_exchange_of_another_kind_is_refused(rabbitmq_server: Any, queue: str) -> None:
    """It is named; nothing counts as published."""
    publisher, published = EventPublisher(rabbitmq_server.url, "amq.fanout", "test"), Published()
    with pytest.raises(EventsRefused, match=r"no durable topic exchange 'amq\.fanout'"):
        await publisher.publish([told()], frozenset({"done"}), published)
    await publisher.close()
    assert published.first == 0


async def test_the_confirms_of_a_batch_have_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay holds its turn meanwhile. Each of these is confirmed sooner."""
    publisher, published = EventPublisher("amqp://nowhere/", "", "test", timeout=0.5), Published()

    async def take_long(*_: object) -> None:
        await asyncio.sleep(0.2)

    monkeypatch.setattr(publisher, "_open", take_long)
    monkeypatch.setattr(publisher, "_send", take_long)
    events = [told(n, group="g", reply_to="amq.q") for n in range(5)]
    with pytest.raises(BrokerUnavailable, match=r"not all of 5 events within 0\.5 s"):
        await publisher.publish(events, frozenset(), published)
    assert 0 < published.first < 5
