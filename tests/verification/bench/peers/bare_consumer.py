"""The bare limit of intake and latency: aio-pika consumes, acks many at once, and does no more."""

from __future__ import annotations

from time import monotonic_ns

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from tests.verification.bench.filling import fill_queue
from tests.verification.bench.load import number_in
from tests.verification.bench.peers.spec import Spec, main

PREFETCH = 500  # groupflow's own default
QUEUE = "bench-bare"


async def run(spec: Spec) -> None:
    """Fill a queue, unless somebody else does, and consume it."""
    name = spec.queue or QUEUE
    if not spec.queue:
        await fill_queue(spec.url, name, spec.load)
    connection = await aio_pika.connect(spec.url)
    channel = await connection.channel(publisher_confirms=False)
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await channel.get_queue(name)
    unacked = 0

    async def on_message(message: AbstractIncomingMessage) -> None:
        nonlocal unacked
        number = number_in(message.body)
        spec.note(number, monotonic_ns())
        unacked += 1
        if unacked >= PREFETCH // 2 or number == spec.load.tasks - 1:
            unacked = 0
            await message.ack(multiple=True)

    await queue.consume(on_message)
    spec.begin()
    await spec.finish()
    await channel.queue_delete(name)
    await connection.close()


if __name__ == "__main__":
    main(run)
