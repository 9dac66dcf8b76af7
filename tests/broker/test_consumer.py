"""A batch of deliveries: what comes alone goes alone, what streams in goes together.

And none is lost with the daemons that die with it.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from aio_pika.abc import AbstractConnection
from aiormq.abc import DeliveredMessage
from pamqp import commands, header
from pamqp.encode import field_table

from groupflow.broker import consumer as module
from groupflow.broker import topology
from groupflow.broker.consumer import STREAM, VALUE_BYTES, Consumer, consuming
from groupflow.broker.frames import VALUES, table
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.errors import BrokerUnavailable
from groupflow.servers import RabbitmqServer
from tests.broker.wires import connected, first_of, proxied, taken
from tests.deadlines import deadline
from tests.turns import turns

MOST, MOST_BYTES = 20, 1_000


def _message(body: bytes, tag: int = 1, **properties: Any) -> DeliveredMessage:
    return DeliveredMessage(
        delivery=commands.Basic.Deliver(delivery_tag=tag),
        header=header.ContentHeader(properties=commands.Basic.Properties(**properties)),
        body=body,
        channel=cast(Any, None),
    )


async def _deliver(consumer: Consumer, number: int, size: int = 10, headers: Any = None) -> None:
    for tag in range(1, number + 1):
        await consumer._on_delivery(_message(b"x" * size, tag, headers=headers))


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    monkeypatch.setattr(module, "GATHER", 3600.0)  # so that only what comes can end the wait
    return Consumer("jobs", 1_000_000)


async def _take(consumer: Consumer) -> list[module.Delivery]:
    async with asyncio.timeout(deadline()):
        return await consumer.take(MOST, MOST_BYTES)


async def test_a_delivery_has_what_routing_reads(consumer: Consumer) -> None:
    facts: dict[str, Any] = {"message_id": "i", "message_type": "t", "priority": 3}
    facts |= {"expiration": "1500", "headers": {"x-expires": 2}}
    await consumer._on_delivery(_message(b"{}", **facts))
    [found] = await _take(consumer)
    assert (found.message_id, found.type, found.priority) == ("i", "t", 3)
    assert (found.expiration, found.headers) == ("1500", {"x-expires": 2})


async def test_a_few_go_at_once(consumer: Consumer) -> None:
    taking = asyncio.create_task(_take(consumer))
    await turns()
    await _deliver(consumer, 1)
    assert len(await taking) == 1
    await _deliver(consumer, STREAM - 1)
    assert len(await _take(consumer)) == STREAM - 1


async def test_a_stream_waits_for_a_whole_batch(consumer: Consumer) -> None:
    await _deliver(consumer, STREAM)
    taking = asyncio.create_task(_take(consumer))
    await _deliver(consumer, MOST - STREAM - 1)
    await turns(5)
    assert not taking.done()
    await _deliver(consumer, 3)
    assert len(await taking) == MOST
    assert len(await _take(consumer)) == 2


async def test_a_stream_waits_for_no_more_bytes_than_a_batch_may_have(consumer: Consumer) -> None:
    await _deliver(consumer, STREAM)
    taking = asyncio.create_task(_take(consumer))
    await turns()
    await _deliver(consumer, 1, size=MOST_BYTES)
    assert len(await taking) == STREAM + 1


async def test_headers_count_as_bodies_do(consumer: Consumer) -> None:
    """1,200 messages with 64 KiB of headers took 2.3 GB: nothing bounded them."""
    _, headers = table(field_table({"x": "y" * (2 * MOST_BYTES)}))
    await _deliver(consumer, 3, headers=headers)
    assert consumer.bytes_waiting > 3 * 2 * MOST_BYTES
    assert len(await _take(consumer)) == 1, "the batch is full of bytes"
    await _take(consumer)
    await _take(consumer)
    assert consumer.bytes_waiting == 0
    await _deliver(consumer, 1_000_000 // (2 * MOST_BYTES) + 1, headers=headers)
    assert not consumer.is_open
    assert consumer.overflowed > 1


async def test_many_small_headers_count_for_the_memory_that_they_take(consumer: Consumer) -> None:
    _, headers = table(field_table({str(n): None for n in range(VALUES)}))
    await _deliver(consumer, 1, headers=headers)
    assert consumer.bytes_waiting > VALUES * VALUE_BYTES


async def test_a_stream_that_ends_goes(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER", 0.001)
    await _deliver(consumer, STREAM)
    assert len(await _take(consumer)) == STREAM


async def test_the_end_of_a_term_ends_the_wait(consumer: Consumer) -> None:
    await _deliver(consumer, STREAM)
    taking = asyncio.create_task(_take(consumer))
    await turns()
    consumer.finish()
    with pytest.raises(BrokerUnavailable):
        await taking


async def test_what_comes_behind_an_unread_delivery_is_not_taken(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ack of what is behind it would cover it too, and nobody would ever have seen it."""
    read = module._delivery_of

    def read_some(message: DeliveredMessage) -> module.Delivery:
        if message.delivery_tag == 2:
            raise MemoryError
        return read(message)

    monkeypatch.setattr(module, "_delivery_of", read_some)
    with pytest.raises(MemoryError):
        await _deliver(consumer, 2)
    await consumer._on_delivery(_message(b"x", 3))
    with pytest.raises(BrokerUnavailable, match="a delivery can't be read: MemoryError"):
        await _take(consumer)


DEATHS = 30
IDS = ["m1", "m2", "m3"]


async def _die_with(server: RabbitmqServer, queue: str, deaths: int) -> None:
    """Take the messages and end as a killed process does: no word, the connection is reset."""
    async with proxied(server) as (proxy, url):
        for _ in range(deaths):
            consumer = Consumer(queue, 1_000_000)
            async with connected(url) as connection, consuming(connection, consumer, 10):
                assert [each.message_id for each in await first_of(consumer, len(IDS))] == IDS
                proxy.cut()
                with pytest.raises(BrokerUnavailable):
                    await consumer.take(1, 1)


async def test_thirty_deaths_lose_nothing(
    rabbitmq_server: RabbitmqServer, connection: AbstractConnection, queue: str
) -> None:
    """On RabbitMQ 3, which has no limit, as on 4, where the queue is declared without."""
    await topology.declare(connection, queue)
    async with publishing(rabbitmq_server.url, queue) as publisher:
        for id_ in IDS:
            await publisher.publish(Outgoing(b"{}", message_id=id_))
    await _die_with(rabbitmq_server, queue, DEATHS)
    assert [each.message_id for each in await taken(rabbitmq_server.url, queue, 3)] == IDS
