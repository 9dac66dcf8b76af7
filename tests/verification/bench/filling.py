"""Filling a queue before a run: the store by the real enqueue, RabbitMQ by a publisher."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

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


@asynccontextmanager
async def store_client(url: str, order: Order = "oldest") -> AsyncIterator[StoreClient]:
    """A client of the namespace that the measured daemons use."""
    client = StoreClient(url, Keys(NAMESPACE), order, timeout=60.0)
    try:
        yield client
    finally:
        await client.close()


def arrival(number: int, group: str, body: bytes, tenant: str = "1", scope: str = "") -> Arrival:
    """A task as intake hands it to the store."""
    return Arrival(f"{number:032d}", Envelope("bench", group, tenant, RULE, {}, body, scope))


def arrivals_of(load: Load) -> Iterable[Arrival]:
    """All tasks of a load."""
    return (arrival(number, f"g{group}", body) for number, group, body in load)


async def enqueue_all(client: StoreClient, arrivals: Iterable[Arrival], batch: int = BATCH) -> None:
    """Enqueue tasks, batch by batch."""
    enqueuer, waiting = Enqueuer(client), iter(arrivals)
    while some := list(itertools.islice(waiting, batch)):
        await enqueuer.enqueue(some)


async def fill_store(url: str, load: Load, order: Order = "oldest") -> None:
    """Enqueue a load."""
    async with store_client(url, order) as client:
        await enqueue_all(client, arrivals_of(load))


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
