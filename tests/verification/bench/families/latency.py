"""latency: from the publish to the start of the handler; and what a daemon costs that has no work.

schedules: how long after its time a tick's handler starts.

Publisher, daemon and Redis are processes on one machine: wall time and CLOCK_MONOTONIC are the same
for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from statistics import quantiles
from time import monotonic, monotonic_ns, time_ns
from typing import Any

from redis.asyncio import Redis

from groupflow.broker.publisher import Outgoing, TermPublisher, publishing
from tests.verification.bench.bench import Bench, Stopwatch, Turn
from tests.verification.bench.daemons import Daemon
from tests.verification.bench.load import Load
from tests.verification.bench.peers.running import begun, run_peer
from tests.verification.bench.records import Records
from tests.verification.bench.rows import OURS, Goal, Row, Unit

RATE = 300  # messages a second
SECONDS, QUICK_SECONDS = 10, 4
IDLE, QUICK_IDLE = 60, 10  # seconds
SILENCE = 5.0  # seconds between one's first message and the next one's
WARM = 100  # messages before those that count
BARE = "bare aio-pika"

EVERY = 0.2  # seconds
TICKS, QUICK_TICKS = 100, 25
WARM_TICKS = 5  # before those that count
SCHEDULE = f'[[schedules]]\nname = "often"\nevery = {EVERY}\ntype = "tick"\n'


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    if any(bench.wants(f"latency.{each}") for each in ("p50", "p99")):
        for row in await _steady(bench):
            yield row
    if any(bench.wants(f"latency.{each}") for each in ("first", "idle_cpu", "idle_calls")):
        for row in await _idle(bench):
            yield row


async def _steady(bench: Bench) -> list[Row]:
    """The way of messages at a steady rate, and the same through RabbitMQ alone."""
    load = Load(RATE * bench.pick(SECONDS, QUICK_SECONDS), 1_000)
    rows = {
        percent: _at_most(
            f"latency.p{percent}",
            f"publish → handler at {RATE} msg/s, p{percent}",
            "ms",
            most,
            is_checked=True,
        )
        for percent, most in ((50, 3), (99, 15))
    }

    def turn(published: list[int], records: Records) -> Turn:
        starts = records.starts()
        waits = [(starts[n] - published[n]) / 1e6 for n in range(WARM, len(published))]
        hundredths = quantiles(waits, n=100)
        return Turn({row.key: hundredths[percent - 1] for percent, row in rows.items()})

    async def ours() -> Turn:
        async with bench.corner() as corner:
            async with (
                publishing(corner.rabbitmq, corner.queue) as publisher,
                corner.daemon(load) as daemon,
            ):
                await daemon.page()
                published = await _publish(publisher, load)
                await daemon.until(60.0)
            records = daemon.records
        for row in rows.values():
            bench.judge(row, records, load)
        return turn(published, records)

    async def bare() -> Turn:
        url, seconds = await bench.rabbitmq(), load.tasks / RATE + 30.0
        with bench.folder() as folder:
            queue = folder.name
            async with publishing(url, queue) as publisher:
                peer = asyncio.create_task(
                    run_peer("bare", load, folder, url, workers=1, seconds=seconds, queue=queue)
                )
                while not (peer.done() or begun(folder)):
                    await asyncio.sleep(0.05)
                return turn(await _publish(publisher, load), await peer)

    for row in rows.values():
        row.beside = BARE
    await bench.take_turns(list(rows.values()), {OURS: ours, BARE: bare})
    return list(rows.values())


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


@dataclass(frozen=True, slots=True)
class _Idle:
    """A daemon that has nothing to do, and the way to it."""

    daemon: Daemon
    publisher: TermPublisher
    redis: Redis


@asynccontextmanager
async def _idle_daemon(bench: Bench, load: Load) -> AsyncIterator[_Idle]:
    """A daemon with servers' corners of its own that has had one message."""
    async with (
        bench.corner() as corner,
        Redis.from_url(corner.redis) as redis,
        publishing(corner.rabbitmq, corner.queue) as publisher,
        corner.daemon(load) as daemon,
    ):
        await daemon.page()
        await publisher.publish(Outgoing(load.body_of(0), "bench", "warm"))
        yield _Idle(daemon, publisher, redis)


async def _idle(bench: Bench) -> list[Row]:
    """Daemons without work beside each other, then a first message for each: a round a daemon."""
    seconds = bench.pick(IDLE, QUICK_IDLE)
    load = Load(2, 2)
    what = f"idle for {seconds} s"
    rows = [
        _at_most("latency.first", f"first message after {seconds} s of idleness", "ms", 5),
        _at_most(
            "latency.idle_cpu", f"{what}: share of a core, the page's process included", "%", 1
        ),
        _at_most("latency.idle_calls", f"{what}: Redis calls", "calls/s", 5),
    ]
    watch, published = Stopwatch(), list[int]()
    async with AsyncExitStack() as stack:
        idle = [
            await stack.enter_async_context(_idle_daemon(bench, load)) for _ in range(bench.rounds)
        ]
        await asyncio.sleep(1)
        cpu, calls, began = [each.daemon.cpu for each in idle], await _commands(idle), monotonic()
        await asyncio.sleep(seconds)
        elapsed = monotonic() - began
        used = [each.daemon.cpu - before for each, before in zip(idle, cpu, strict=True)]
        called = [
            after - before - 1 for after, before in zip(await _commands(idle), calls, strict=True)
        ]
        for each in idle:
            await asyncio.sleep(SILENCE if published else 0.0)
            published.append(monotonic_ns())
            await each.publisher.publish(Outgoing(load.body_of(1), "bench", "first"))
            await each.daemon.until(60.0)
        starts = []
        for each in idle:
            await each.daemon.stop()  # it writes its records then
            starts.append(each.daemon.records.starts()[1])
    waits = [(start - at) / 1e6 for start, at in zip(starts, published, strict=True)]
    cores = [each / elapsed * 100 for each in used]
    rates = [each / elapsed for each in called]
    for row, figures in zip(rows, (waits, cores, rates), strict=True):
        row.rounds = [watch.round({OURS: figure}) for figure in figures]
    return rows


def _at_most(key: str, title: str, unit: Unit, most: float, *, is_checked: bool = False) -> Row:
    goal = Goal(f"≤ {most:g} {unit}", most, least=False, is_of_ratio=False)
    return Row(key, title, unit, goal, is_checked=is_checked)


async def _commands(idle: list[_Idle]) -> list[int]:
    """Calls from each one's clients: all commands, less those that scripts made."""
    from_clients = ("evalsha", "ping", "publish", "subscribe", "hello", "client|setinfo", "info")
    found = []
    for each in idle:
        stats: dict[str, Any] = await each.redis.info("commandstats")
        counts = (stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in from_clients)
        found.append(sum(int(count) for count in counts))
    return found


async def schedules(bench: Bench) -> AsyncIterator[Row]:
    """Measure the row of ticks."""
    row = _at_most("schedules.lateness", "tick → handler starts, p50", "ms", 20, is_checked=True)
    ticks = bench.pick(TICKS, QUICK_TICKS)

    async def ours() -> Turn:
        ahead = time_ns() - monotonic_ns()
        async with bench.corner() as corner:
            async with corner.daemon(Load(WARM_TICKS + ticks, 1), schedules=SCHEDULE) as daemon:
                await daemon.page()
                await daemon.until(WARM_TICKS + ticks * EVERY * 3 + 30.0, "its ticks")
            starts = daemon.records.starts()
        # Each is numbered by its time, in tenths of a second.
        waits = [(starts[due] + ahead - due * 10**8) / 1e6 for due in sorted(starts)[WARM_TICKS:]]
        return Turn({row.key: quantiles(waits, n=100)[49]})

    if bench.wants(row.key):
        await bench.take_turns([row], {OURS: ours})
        yield row
