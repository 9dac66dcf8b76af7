"""What is lost by nobody: messages that daemons die with."""

from __future__ import annotations

import pytest
from aio_pika.abc import AbstractConnection

from groupflow.broker import topology
from groupflow.broker.consumer import Consumer, consuming
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.errors import BrokerUnavailable
from groupflow.servers import RabbitmqServer
from tests.broker.wires import connected, first_of, proxied, taken

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
