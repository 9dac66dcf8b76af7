"""Connections to a real RabbitMQ, with and without a proxy, and what lies in a queue of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import orjson
from aio_pika.abc import AbstractConnection

from groupflow.broker import connection as wire
from groupflow.broker import topology
from groupflow.broker.connection import open_channel
from groupflow.broker.consumer import Consumer, Delivery, consuming
from groupflow.broker.dead_stream import name_of
from tests.deadlines import deadline
from tests.servers.proxy import Proxy

MOST_BYTES = 10_000_000


def connected(url: str) -> AbstractAsyncContextManager[AbstractConnection]:
    """A connection as ours are made."""
    return wire.connected(url, timeout=deadline(), name="test")


@asynccontextmanager
async def proxied(server: Any) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the server, and its URL."""
    proxy = Proxy(server.port)
    await proxy.start()
    try:
        yield proxy, f"amqp://guest:guest@127.0.0.1:{proxy.port}/"
    finally:
        await proxy.stop()


async def first_of(consumer: Consumer, count: int) -> list[Delivery]:
    """The first so many of a queue, unacked."""
    found: list[Delivery] = []
    while len(found) < count:
        found += await consumer.take(count - len(found), MOST_BYTES)
    return found


async def taken(url: str, queue: str, count: int) -> list[Delivery]:
    """So many messages, in the queue's order."""
    async with connected(url) as connection:
        consumer, found = Consumer(queue, MOST_BYTES), list[Delivery]()
        async with consuming(connection, consumer, 1000):
            while len(found) < count:
                found += await first_of(consumer, min(count - len(found), 1000))
                await consumer.ack_through(found[-1])
    return found


async def forget(url: str, queue: str) -> None:
    """Delete a queue, and the stream of its dead letters with its exchange."""
    stream = name_of(queue)
    async with connected(url) as connection:
        for each in (queue, stream):
            await topology.delete(connection, each)
        channel = await open_channel(connection, confirms=False)
        await channel.exchange_delete(stream)


async def waiting_in(url: str, queue: str) -> int:
    """How many messages a queue would hand out."""
    async with connected(url) as connection:
        channel = await open_channel(connection, confirms=False)
        return (await channel.queue_declare(queue, passive=True)).message_count or 0


async def bind(url: str, name: str, **arguments: Any) -> None:
    """A durable queue that hears all that a topic exchange of its name is told."""
    async with connected(url) as connection:
        channel = await connection.channel()
        told = await channel.declare_exchange(name, "topic", durable=True)
        queue = await channel.declare_queue(name, durable=True, arguments=arguments)
        await queue.bind(told, "#")


async def told_in(url: str, queue: str) -> list[dict[str, Any]]:
    """The events that came to a queue."""
    found = []
    async with connected(url) as connection:
        channel = await connection.channel()
        source = await channel.get_queue(queue)
        while message := await source.get(no_ack=True, fail=False):
            found.append(orjson.loads(message.body))
    return found


async def make_queue(url: str, queue: str, *, durable: bool = True, **arguments: Any) -> None:
    """Declare a queue that ours isn't."""
    async with connected(url) as connection:
        channel = await open_channel(connection, confirms=False)
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        await channel.queue_declare(queue, durable=durable, arguments=named)
