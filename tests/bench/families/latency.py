"""latency: from the publish to the start of the handler; and what a daemon costs that has no work.

TermPublisher and daemon are two processes on one machine: CLOCK_MONOTONIC is the same for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from statistics import quantiles
from time import monotonic, monotonic_ns
from typing import Any

from redis.asyncio import Redis

from groupflow.broker.publisher import Outgoing, TermPublisher, publishing
from tests.bench.bench import Bench
from tests.bench.daemons import Setting, running
from tests.bench.load import Load
from tests.bench.records import Records
from tests.bench.rows import Goal, Row

RATE = 300  # messages a second
SECONDS, QUICK_SECONDS = 15, 4
IDLE, QUICK_IDLE = 60, 10  # seconds
WARM = 100  # messages before those that count


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    trip = await bench.round_trip() * 1000
    for row in await _steady(bench, trip):
        yield row
    for row in await _idle(bench, trip):
        yield row


async def _steady(bench: Bench, trip: float) -> list[Row]:
    load = Load(RATE * bench.pick(SECONDS, QUICK_SECONDS), 1_000)
    rabbitmq = await bench.rabbitmq()
    async with bench.redis() as (server, folder):
        setting = Setting(server.url, rabbitmq, folder.name, only="")
        async with (
            publishing(rabbitmq, folder.name) as publisher,
            running(setting, load, folder) as daemon,
        ):
            published = await _publish(publisher, load)
            await daemon.until(60.0)
        records = Records.read([daemon.records])
    starts = records.starts()
    waits = [(starts[n] - published[n]) / 1e6 for n in range(WARM, load.tasks)]
    cuts = quantiles(waits, n=100)
    p50 = Row("latency.p50", f"publish → handler at {RATE} msg/s, p50", cuts[49], "ms", cuts[49])
    p50.goal, p50.guard = Goal("≤ 3 ms", 3.0, least=False), trip / cuts[49]
    p99 = Row("latency.p99", f"publish → handler at {RATE} msg/s, p99", cuts[98], "ms", cuts[98])
    p99.goal, p99.guard = Goal("≤ 15 ms", 15.0, least=False), trip / cuts[98]
    bench.judge(p50, "groupflow", records, load)
    return [p50, p99]


async def _publish(publisher: TermPublisher, load: Load) -> list[int]:
    """Publish at a steady rate; when each message was handed to the library."""
    published: list[int] = []
    flying: set[asyncio.Task[None]] = set()
    began = monotonic()
    for number, _, body in load:
        await asyncio.sleep(max(0.0, began + number / RATE - monotonic()))
        message = Outgoing(body, "bench", f"{number:032d}")
        published.append(monotonic_ns())
        task = asyncio.create_task(publisher.publish(message))
        flying.add(task)
        task.add_done_callback(flying.discard)
    await asyncio.gather(*flying)
    return published


async def _idle(bench: Bench, trip: float) -> list[Row]:
    """A daemon without work, then the first message."""
    seconds = bench.pick(IDLE, QUICK_IDLE)
    rabbitmq = await bench.rabbitmq()
    load = Load(2, 2)
    bodies = [body for _, _, body in load]
    async with bench.redis() as (server, folder), Redis.from_url(server.url) as redis:
        setting = Setting(server.url, rabbitmq, folder.name, only="", plain=8)
        async with (
            publishing(rabbitmq, folder.name) as publisher,
            running(setting, load, folder) as daemon,
        ):
            await publisher.publish(Outgoing(bodies[0], "bench", "warm"))
            await asyncio.sleep(1)
            cpu, calls, began = daemon.cpu, await _commands(redis), monotonic()
            await asyncio.sleep(seconds)
            elapsed = monotonic() - began
            cpu = (daemon.cpu - cpu) / elapsed * 100
            called = (await _commands(redis) - calls - 1) / elapsed
            at = monotonic_ns()
            await publisher.publish(Outgoing(bodies[1], "bench", "first"))
            await daemon.until(60.0)
        wait = (Records.read([daemon.records]).starts()[1] - at) / 1e6
    first = Row("latency.first", f"first message after {seconds} s of idleness", wait, "ms", wait)
    first.goal, first.guard = Goal("≤ 5 ms", 5.0, least=False), trip / wait
    core = Row("latency.idle_cpu", f"idle for {seconds} s: share of a core", cpu, "%", cpu)
    core.goal = Goal("≤ 1 %", 1.0, least=False)
    talk = Row(
        "latency.idle_calls", f"idle for {seconds} s: Redis calls", called, "calls/s", called
    )
    talk.goal, talk.guard = Goal("≤ 5 calls/s", 5.0, least=False), 1 / max(called, 0.1)
    first.is_checked = core.is_checked = talk.is_checked = False
    return [first, core, talk]


async def _commands(redis: Redis) -> int:
    """Calls from clients: all commands, less those that scripts made."""
    stats: dict[str, Any] = await redis.info("commandstats")
    from_clients = ("evalsha", "ping", "publish", "subscribe", "hello", "client|setinfo", "info")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in from_clients)
