"""RabbitMQ alone: a consistent-hash exchange into single-active-consumer queues, one task each.

A queue per worker, so groups that hash alike wait for each other. Quorum queues, as ours.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from groupflow.broker.topology import ARGUMENTS
from tests.verification.bench.load import number_in
from tests.verification.bench.peers.spec import Spec, main

AT_ONCE = 200  # messages published before the first confirm is awaited


async def run(spec: Spec) -> None:
    """Fill the queues through the exchange, then consume all of them with prefetch 1."""
    connection = await aio_pika.connect(spec.url)
    mark = uuid4().hex[:8]
    channel = await connection.channel()
    exchange = await channel.declare_exchange(
        f"bench-{mark}", aio_pika.ExchangeType.X_CONSISTENT_HASH, durable=True
    )
    names = [f"bench-{mark}-{n}" for n in range(spec.workers)]
    for name in names:
        queue = await channel.declare_queue(name, durable=True, arguments=dict(ARGUMENTS))
        await queue.bind(exchange, routing_key="1")
    await _fill(exchange, spec)
    spec.begin()

    async def on_message(message: AbstractIncomingMessage) -> None:
        await spec.handle(number_in(message.body))
        await message.ack()

    channels = []
    for name in names:
        own = await connection.channel(publisher_confirms=False)
        await own.set_qos(prefetch_count=1)
        await (await own.get_queue(name)).consume(on_message)
        channels.append(own)  # a connection holds its channels weakly
    await spec.finish()
    for name in names:
        await channel.queue_delete(name)
    await exchange.delete()
    await connection.close()


async def _fill(exchange: aio_pika.abc.AbstractExchange, spec: Spec) -> None:
    flying: list[asyncio.Task[object]] = []
    for _, group, body in spec.load:
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        flying.append(asyncio.create_task(exchange.publish(message, f"g{group}")))
        if len(flying) >= AT_ONCE:
            await asyncio.gather(*flying)
            flying.clear()
    await asyncio.gather(*flying)


if __name__ == "__main__":
    main(run)
