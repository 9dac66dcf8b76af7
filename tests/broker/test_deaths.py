"""A message that daemons die with comes again, in its place, however many they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiormq
import pytest

from groupflow.broker import topology
from groupflow.broker.connection import Connection, close_quietly, connect
from groupflow.broker.consumer import Consumer, Delivery, consuming
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.errors import BrokerUnavailable
from groupflow.servers import RabbitmqServer
from tests.deadlines import deadline
from tests.servers.proxy import Proxy

DEATHS = 30
LIMIT = 20  # what RabbitMQ 4 gives a quorum queue by itself
IDS = ["m1", "m2", "m3"]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await connect(url, heartbeat=10, timeout=deadline(), name="test")
    try:
        yield connection
    finally:
        await close_quietly(connection.close())


async def _first(consumer: Consumer, number: int) -> list[Delivery]:
    """The first so many of the queue, unacked."""
    found: list[Delivery] = []
    while len(found) < number:
        found += await consumer.take(number - len(found), 1_000_000)
    return found


async def _publish(server: RabbitmqServer, queue: str, *ids: str) -> None:
    async with publishing(server.url, queue) as publisher:
        for id_ in ids:
            await publisher.publish(Outgoing(b"{}", message_id=id_))


async def _die_with(server: RabbitmqServer, queue: str, deaths: int) -> None:
    """Take the messages and end as a killed process does: no word, the connection is reset."""
    proxy = Proxy(server.port)
    await proxy.start()
    url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
    try:
        for _ in range(deaths):
            consumer = Consumer(queue, 1_000_000)
            async with connected(url) as connection, consuming(connection, consumer, 10):
                assert [each.message_id for each in await _first(consumer, len(IDS))] == IDS
                proxy.cut()
                with pytest.raises(BrokerUnavailable):
                    await consumer.take(1, 1)
    finally:
        await proxy.stop()


async def test_thirty_deaths_lose_nothing(rabbitmq_server: RabbitmqServer) -> None:
    """On RabbitMQ 3, which has no limit, as on 4, where the queue is declared without."""
    async with connected(rabbitmq_server.url) as connection:
        await topology.declare(connection, "deaths")
        await _publish(rabbitmq_server, "deaths", *IDS)
        await _die_with(rabbitmq_server, "deaths", DEATHS)
        consumer = Consumer("deaths", 1_000_000)
        async with consuming(connection, consumer, 10):
            assert [each.message_id for each in await _first(consumer, len(IDS))] == IDS
        await topology.delete(connection, "deaths")


async def test_a_limit_loses_them(rabbitmq_server: RabbitmqServer) -> None:
    """Which is why the doctor warns of one."""
    arguments: dict[str, Any] = {**topology.ARGUMENTS, "x-delivery-limit": LIMIT}
    async with connected(rabbitmq_server.url) as connection:
        raw = await aiormq.connect(rabbitmq_server.url)
        channel = await raw.channel()
        await channel.queue_declare("limited-deaths", durable=True, arguments=arguments)
        await raw.close()
        await _publish(rabbitmq_server, "limited-deaths", *IDS)
        await _die_with(rabbitmq_server, "limited-deaths", LIMIT + 1)
        await _publish(rabbitmq_server, "limited-deaths", "later")
        consumer = Consumer("limited-deaths", 1_000_000)
        async with consuming(connection, consumer, 10):
            assert [each.message_id for each in await _first(consumer, 1)] == ["later"]
        await topology.delete(connection, "limited-deaths")
