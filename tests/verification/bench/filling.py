"""Filling a queue before a run: the store by the real enqueue, RabbitMQ by a publisher."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import aio_pika

from groupflow.broker.publisher import Outgoing, publishing
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.keys import Keys
from groupflow.store.scripts import Order
from tests.verification.bench.load import Load

NAMESPACE = "bench"
RULE = "bench"
BATCH = 500


def store_client(url: str, order: Order = "oldest") -> StoreClient:
    """A client of the namespace that the measured daemons use."""
    keys = Keys(NAMESPACE)
    return StoreClient(url, keys, order, timeout=60.0)


def arrival(number: int, group: str | None, body: bytes) -> Arrival:
    """A task as intake hands it to the store."""
    envelope = Envelope("bench", group, "1", RULE if group else None, {}, body)
    return Arrival(f"{number:032d}", envelope)


def arrivals_of(load: Load, *, plain: bool = False, first: int = 0) -> Iterable[Arrival]:
    """All tasks of a load, numbered from `first`."""
    for number, group, _ in load:
        yield arrival(first + number, None if plain else f"g{group}", load.body_of(first + number))


async def fill_store(
    url: str,
    load: Load,
    *,
    plain: bool = False,
    order: Order = "oldest",
    first: int = 0,
) -> None:
    """Enqueue a load, batch by batch."""
    client = store_client(url, order)
    enqueuer = Enqueuer(client)
    waiting = iter(arrivals_of(load, plain=plain, first=first))
    try:
        while batch := list(itertools.islice(waiting, BATCH)):
            await enqueuer.enqueue(batch)
    finally:
        await client.close()


async def fill_queue(url: str, queue: str, load: Load, first: int = 0) -> None:
    """Publish a load to a queue of RabbitMQ, numbered from `first`, with confirms."""
    async with publishing(url, queue) as publisher:
        await publisher.publish_all(
            Outgoing(load.body_of(number), "bench", f"{number:032d}")
            for number in range(first, first + load.tasks)
        )


async def forget_queue(url: str, queue: str) -> None:
    """Delete what a daemon declared, so that RabbitMQ doesn't carry the queues of all runs."""
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        await channel.queue_delete(queue)
        await channel.queue_delete(f"{queue}.dead")
