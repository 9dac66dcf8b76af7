"""latency: from the publish to the start of the handler; and what a daemon costs that has no work.

Publisher and daemon are two processes on one machine: CLOCK_MONOTONIC is the same for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from time import monotonic, monotonic_ns
from typing import Any

from redis.asyncio import Redis

from groupflow.broker.publisher import Outgoing, TermPublisher, publishing
from tests.bench.bench import Bench
from tests.bench.daemons import Daemon, Setting, running
from tests.bench.load import Load
from tests.bench.peers.running import PeerFailed, begun, run_python
from tests.bench.records import Records
from tests.bench.rows import Goal, Row

RATE = 300  # messages a second
SECONDS, QUICK_SECONDS = 15, 4
IDLE, QUICK_IDLE = 60, 10  # seconds
DAEMONS, QUICK_DAEMONS = 5, 1  # that are idle beside each other
SILENCE = 5.0  # seconds between one's first message and the next one's
WARM = 100  # messages before those that count
BARE = "bare aio-pika"


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    load = Load(RATE * bench.pick(SECONDS, QUICK_SECONDS), 1_000)
    waits, records = await _steady(bench, load)
    try:
        bare = await _bare(bench, load)
    except PeerFailed as error:
        bench.problems.append(f"latency: {BARE}: {error}")
        bare = []
    for row in _steady_rows(waits, bare):
        bench.judge(row, "groupflow", records, load)
        yield row
    for row in await _idle(bench, bare):
        yield row


async def _bare(bench: Bench, load: Load) -> list[float]:
    """The same messages to a consumer that does nothing: the way through RabbitMQ alone."""
    rabbitmq = await bench.rabbitmq()
    with bench.folder() as folder:
        async with publishing(rabbitmq, folder.name) as publisher:
            facts = {"url": rabbitmq, "queue": folder.name}
            seconds = load.tasks / RATE + 30.0
            peer = asyncio.create_task(
                run_python("bare_consumer", load, folder, workers=1, seconds=seconds, facts=facts)
            )
            while not (peer.done() or begun(folder)):
                await asyncio.sleep(0.05)
            published = await _publish(publisher, load)
            return _waits(published, await peer)


def _waits(published: list[int], records: Records) -> list[float]:
    """Milliseconds from each publish to its handler, but for the first ones."""
    starts = records.starts()
    return [(starts[n] - published[n]) / 1e6 for n in range(WARM, len(published))]


async def _steady(bench: Bench, load: Load) -> tuple[list[float], Records]:
    """Milliseconds that messages waited, and what was recorded."""
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
    return _waits(published, records), records


def _steady_rows(waits: list[float], bare: list[float]) -> Iterator[Row]:
    for percent, most in ((50, 3.0), (99, 15.0)):
        ours = quantiles(waits, n=100)[percent - 1]
        title = f"publish → handler at {RATE} msg/s, p{percent}"
        row = Row(f"latency.p{percent}", title, ours, "ms", ours)
        row.goal = Goal(f"≤ {most:g} ms", most, least=False)
        if bare:
            row.peers[BARE] = quantiles(bare, n=100)[percent - 1]
            row.guard = row.peers[BARE] / ours
        yield row


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
    rabbitmq = await bench.rabbitmq()
    async with bench.redis() as (server, folder), Redis.from_url(server.url) as redis:
        setting = Setting(server.url, rabbitmq, folder.name, only="", plain=8)
        async with (
            publishing(rabbitmq, folder.name) as publisher,
            running(setting, load, folder) as daemon,
        ):
            await publisher.publish(Outgoing(load.body_of(0), "bench", "warm"))
            yield _Idle(daemon, publisher, redis)


async def _idle(bench: Bench, bare: list[float]) -> list[Row]:
    """Daemons without work, then a first message for each."""
    seconds = bench.pick(IDLE, QUICK_IDLE)
    load = Load(2, 2)
    published: list[int] = []
    async with AsyncExitStack() as stack:
        idle = [
            await stack.enter_async_context(_idle_daemon(bench, load))
            for _ in range(bench.pick(DAEMONS, QUICK_DAEMONS))
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
            starts.append(Records.read([each.daemon.records]).starts()[1])
    waits = [(start - at) / 1e6 for start, at in zip(starts, published, strict=True)]
    wait, core, talk = median(waits), fmean(used) / elapsed * 100, fmean(called) / elapsed
    title = f"first message after {seconds} s of idleness"
    first = Row("latency.first", title, wait, "ms", wait, Goal("≤ 5 ms", 5.0, least=False))
    first.details = {"best": min(waits), "worst": max(waits)}
    if bare:
        first.guard = median(bare) / wait
    rows = [
        first,
        Row("latency.idle_cpu", f"idle for {seconds} s: share of a core", core, "%", core,
            Goal("≤ 1 %", 1.0, least=False)),
        Row("latency.idle_calls", f"idle for {seconds} s: Redis calls", talk, "calls/s", talk,
            Goal("≤ 5 calls/s", 5.0, least=False), guard=1 / max(talk, 0.1)),
    ]  # fmt: skip
    for row in rows:
        row.is_checked = False
    return rows


async def _commands(idle: list[_Idle]) -> list[int]:
    """Calls from each one's clients: all commands, less those that scripts made."""
    from_clients = ("evalsha", "ping", "publish", "subscribe", "hello", "client|setinfo", "info")
    found = []
    for each in idle:
        stats: dict[str, Any] = await each.redis.info("commandstats")
        counts = (stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in from_clients)
        found.append(sum(int(count) for count in counts))
    return found
