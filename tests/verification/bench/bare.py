"""Bare aio-pika, on uvloop as ours: consumes a queue, acks many at once, and does no more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from time import monotonic_ns
from typing import Any

import aio_pika
import uvloop
from aio_pika.abc import AbstractIncomingMessage

from tests.verification.bench.load import number_in
from tests.verification.bench.records import Recorder

PREFETCH = 500  # groupflow's own default


async def main(spec: dict[str, Any]) -> None:
    """Do what `spec` says: see `peers.py`."""
    recorder, tasks, all_are_there = Recorder(), spec["load"]["tasks"], asyncio.Event()
    records = Path(spec["records"])
    connection = await aio_pika.connect(spec["url"])
    channel = await connection.channel(publisher_confirms=False)
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await channel.get_queue(spec["queue"])

    async def on_message(message: AbstractIncomingMessage) -> None:
        recorder.add(number_in(message.body), monotonic_ns(), monotonic_ns())
        if len(recorder) % (PREFETCH // 2) == 0 or len(recorder) == tasks:
            await message.ack(multiple=True)
        if len(recorder) == tasks:
            all_are_there.set()

    await queue.consume(on_message)
    records.with_suffix(".begun").touch()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(spec["seconds"]):
            await all_are_there.wait()
    recorder.write(records)
    await channel.queue_delete(queue.name)
    await connection.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(json.loads(sys.argv[1])))
