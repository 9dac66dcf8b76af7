"""A queue of RabbitMQ: filled before a run, and deleted after it."""

from __future__ import annotations

import aio_pika

from groupflow.broker.publisher import Outgoing, publishing
from tests.verification.bench.load import Load


def message(load: Load, number: int) -> Outgoing:
    """A task of a load, as it is published."""
    return Outgoing(load.body_of(number), load.type, f"{number:032d}")


async def fill_queue(url: str, queue: str, load: Load) -> None:
    """Publish a load, with confirms."""
    async with publishing(url, queue) as publisher:
        await publisher.publish_all(message(load, number) for number in range(load.tasks))


async def forget_queue(url: str, queue: str) -> None:
    """Delete what a daemon declared, so that RabbitMQ doesn't carry the queues of all runs."""
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        await channel.queue_delete(queue)
        await channel.queue_delete(f"{queue}.dead")
