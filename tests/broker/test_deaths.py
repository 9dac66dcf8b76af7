"""A message that daemons die with comes again, in its place, however many they are."""

from __future__ import annotations

from typing import Any

import pytest
from aio_pika.abc import AbstractConnection

from groupflow.broker import topology
from groupflow.broker.consumer import Consumer, consuming
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.errors import BrokerUnavailable
from groupflow.servers import RabbitmqServer
from tests.broker.wires import connected, first_of, make_queue, proxied, taken

DEATHS = 30
LIMIT = 20  # what RabbitMQ 4 gives a quorum queue by itself
IDS = ["m1", "m2", "m3"]


async def _publish(server: RabbitmqServer, queue: str, *ids: str) -> None:
    async with publishing(server.url, queue) as publisher:
        for id_ in ids:
            await publisher.publish(Outgoing(b"{}", message_id=id_))


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
    rabbitmq_server: RabbitmqServer, connection: AbstractConnection
) -> None:
    """On RabbitMQ 3, which has no limit, as on 4, where the queue is declared without."""
    await topology.declare(connection, "deaths")
    await _publish(rabbitmq_server, "deaths", *IDS)
    await _die_with(rabbitmq_server, "deaths", DEATHS)
    assert [each.message_id for each in await taken(rabbitmq_server.url, "deaths", 3)] == IDS
    await topology.delete(connection, "deaths")


async def test_a_limit_loses_them(
    rabbitmq_server: RabbitmqServer, connection: AbstractConnection
) -> None:
    """Which is why the doctor warns of one."""
    arguments: Any = {**topology.ARGUMENTS, "x-delivery-limit": LIMIT}
    await make_queue(rabbitmq_server.url, "limited-deaths", **arguments)
    await _publish(rabbitmq_server, "limited-deaths", *IDS)
    await _die_with(rabbitmq_server, "limited-deaths", LIMIT + 1)
    await _publish(rabbitmq_server, "limited-deaths", "later")
    (only,) = await taken(rabbitmq_server.url, "limited-deaths", 1)
    assert only.message_id == "later"
    await topology.delete(connection, "limited-deaths")
