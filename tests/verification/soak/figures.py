"""`python -m tests.verification.soak.figures`: how long recovery takes, over many trials each."""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import orjson
from redis import Redis

from groupflow.broker.publisher import Outgoing, publishing
from groupflow.core.errors import GroupflowError
from groupflow.servers import PrivateServers, private_servers
from groupflow.store.keys import Keys
from tests.history.configuration import NAMESPACE, QUEUE, TENANT, write_config
from tests.history.events import Event, Journal
from tests.servers.proxy import Proxy
from tests.verification.soak.brokers import amqp
from tests.verification.soak.daemons import Slot

LEASE = 8.0  # the default
BACKLOG = 2000  # tasks that wait while daemons are restarted
BUCKET = 0.5  # seconds, in which throughput may not be zero

Trial = Callable[["Bench"], Awaitable[list[float]]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: what is measured, the goal in seconds, and one round of trials."""

    name: str
    goal: float
    round: Trial


class Bench:
    """Servers, and whatever daemons a round needs.

    Attributes:
        servers: running.
        folder: of this round.
        journal: what its handlers wrote.
        chance: for the moment at which something breaks.
    """

    def __init__(self, servers: PrivateServers, folder: Path, chance: Random) -> None:
        self.servers = servers
        self.folder = folder
        self.journal = Journal(folder / "history.jsonl")
        self.chance = chance
        self._slots: list[Slot] = []

    async def daemon(
        self, *, plain: int = 0, grouped: int = 16, rabbitmq: int = 0, only: str | None = None
    ) -> Slot:
        """Start one more daemon."""
        number = len(self._slots)
        config = write_config(
            self.folder / f"{number}.toml",
            rabbitmq=amqp([rabbitmq or self.servers.rabbitmq.port]),
            redis=f'url = "redis://127.0.0.1:{self.servers.redis.port}/0"',
            lease=LEASE,
            plain=plain,
            grouped=grouped,
        )
        slot = Slot(number, self.folder, config)
        self._slots.append(slot)
        await slot.start(only=only)
        await self.said(slot, "daemon.started")
        return slot

    async def said(self, slot: Slot, event: str, times: int = 1, within: float = 60.0) -> None:
        """Wait until a daemon has logged something so many times."""
        async with asyncio.timeout(within):
            while not slot.log.exists() or slot.log.read_text().count(f'"{event}"') < times:
                await asyncio.sleep(0.01)

    async def publish(self, *messages: Outgoing) -> None:
        """Publish, again and again until RabbitMQ has confirmed."""
        while True:
            with suppress(GroupflowError):
                async with publishing(self.servers.rabbitmq.url, QUEUE, timeout=2.0) as publisher:
                    await publisher.publish_all(messages)
                return
            await asyncio.sleep(0.02)

    async def started(self, id_: str, crashes: int = 0, within: float = 60.0) -> Event:
        """Wait for the start of a task."""
        async with asyncio.timeout(within):
            while True:
                for event in self.events():
                    if event.kind == "start" and event.id == id_ and event.crashes >= crashes:
                        return event
                await asyncio.sleep(0.01)

    def events(self) -> list[Event]:
        """What handlers have written so far; none where a line is just being written."""
        with suppress(ValueError):
            return self.journal.read()
        return []

    def done(self) -> int:
        """How many tasks the store has seen done."""
        with Redis.from_url(self.servers.redis.url) as raw:
            found: Any = raw.hget(Keys(NAMESPACE)("count"), "done")
        return int(found or 0)

    async def close(self) -> None:
        """End what is left."""
        await asyncio.gather(*(slot.kill() for slot in self._slots))


def message(id_: str, kind: str, entity: str) -> Outgoing:
    """A grouped task."""
    body = {"app_name": "soak", "tenant_id": TENANT, "entity": entity, "n": 0}
    return Outgoing(orjson.dumps(body), kind, id_)


async def taken_over(bench: Bench) -> list[float]:
    """Ten daemons with a task each are killed; another one takes them over."""
    victims = [await bench.daemon(grouped=1, only="workers") for _ in range(10)]
    intake = await bench.daemon(only="intake")
    ids = [f"held-{number}" for number in range(len(victims))]
    await bench.publish(*(message(id_, "hold", id_) for id_ in ids))
    starts = [await bench.started(id_) for id_ in ids]
    await bench.daemon(grouped=32, only="workers")
    by_log = {slot: slot.log.read_text() for slot in victims}
    killed: dict[int, float] = {}
    for slot in victims:
        await asyncio.sleep(bench.chance.uniform(0.0, 0.5))
        pid = next(s.pid for s in starts if f'"pid":{s.pid},' in by_log[slot])
        await slot.kill()
        killed[pid] = time.monotonic()
    again = [await bench.started(id_, crashes=1) for id_ in ids]
    await intake.kill()
    return [after.at - killed[first.pid] for first, after in zip(starts, again, strict=True)]


async def taken_up(bench: Bench) -> list[float]:
    """A daemon is killed, and started again under its name; counted from its start."""
    slot = await bench.daemon()
    found = []
    for number in range(10):
        id_ = f"held-{number}"
        await bench.publish(message(id_, "hold", id_))
        await bench.started(id_)
        await asyncio.sleep(bench.chance.uniform(0.0, 0.3))
        await slot.kill()
        began = time.monotonic()
        await slot.start()
        found.append((await bench.started(id_, crashes=1)).at - began)
    return found


async def after_redis(bench: Bench) -> list[float]:
    """Redis restarts; a message that is published on its return runs."""
    for _ in range(3):
        await bench.daemon()
    return [
        await _back_at_work(bench, f"after-{number}", bench.servers.redis.restart)
        for number in range(10)
    ]


async def after_rabbitmq(bench: Bench) -> list[float]:
    """RabbitMQ restarts; a message that is published on its return runs."""
    for _ in range(3):
        await bench.daemon()
    return [
        await _back_at_work(bench, f"after-{number}", bench.servers.rabbitmq.restart)
        for number in range(5)
    ]


async def _back_at_work(bench: Bench, id_: str, restart: Callable[[], Awaitable[None]]) -> float:
    await bench.publish(message(f"{id_}-before", "work", id_))
    await bench.started(f"{id_}-before")
    await asyncio.sleep(bench.chance.uniform(0.5, 1.5))
    await restart()
    returned = time.monotonic()
    await bench.publish(message(id_, "work", id_))
    return (await bench.started(id_)).at - returned


async def dead_peer(bench: Bench) -> list[float]:
    """The network swallows everything between ten daemons and RabbitMQ, and says nothing."""
    wires = [Proxy(bench.servers.rabbitmq.port) for _ in range(10)]
    slots = []
    for wire in wires:
        await wire.start()
        slots.append(await bench.daemon(rabbitmq=wire.port, only="intake"))
        await bench.said(slots[-1], "intake.started")

    async def noticed(wire: Proxy, slot: Slot) -> float:
        await asyncio.sleep(bench.chance.uniform(0.0, 10.0))
        wire.hold("up", "down")
        began = time.monotonic()
        await bench.said(slot, "intake.interrupted", within=90.0)
        return time.monotonic() - began

    try:
        return list(await asyncio.gather(*map(noticed, wires, slots)))
    finally:
        for wire in wires:
            await wire.stop()


FIGURES = (
    Figure("taken over by another daemon after kill -9, lease 8 s", 10.0, taken_over),
    Figure("taken up by the restarted daemon, from its start", 1.0, taken_up),
    Figure("back at work after Redis has returned", 3.0, after_redis),
    Figure("back at work after RabbitMQ has returned", 3.0, after_rabbitmq),
    Figure("a dead RabbitMQ connection is noticed", 35.0, dead_peer),
)


@asynccontextmanager
async def bench_on(servers: PrivateServers, folder: Path, chance: Random) -> AsyncIterator[Bench]:
    """An empty store and a folder of its own for one round."""
    with Redis.from_url(servers.redis.url) as raw:
        raw.flushall()
    bench = Bench(servers, Path(tempfile.mkdtemp(dir=folder)), chance)
    try:
        yield bench
    finally:
        await bench.close()


async def rolling_restarts(
    servers: PrivateServers, folder: Path, chance: Random, trials: int
) -> list[str]:
    """Three daemons are stopped and started one after another, under load; no trial may hurt."""
    seconds, twice, lost, idle, runs = [], 0, 0, 0, 0
    async with bench_on(servers, folder, chance) as bench:
        slots = [await bench.daemon(plain=4) for _ in range(3)]
        ids: list[str] = []
        load = asyncio.create_task(_load(bench, ids))
        while len(ids) < BACKLOG:
            await asyncio.sleep(0.1)
        first = time.monotonic()
        for _ in range(trials):
            began = time.monotonic()
            for slot in slots:
                starts = slot.log.read_text().count('"daemon.started"')
                await slot.terminate()
                await slot.start()
                await bench.said(slot, "daemon.started", starts + 1)
            seconds.append(time.monotonic() - began)
        last = time.monotonic()
        load.cancel()
        with suppress(asyncio.CancelledError):
            await load
        async with asyncio.timeout(180):
            while bench.done() < len(ids):
                await asyncio.sleep(0.1)
        events = bench.journal.read()
        starts_of = Counter(event.id for event in events if event.kind == "start")
        ends_of = Counter(e.id for e in events if e.kind == "end" and e.how == "done")
        runs = len(starts_of)
        twice = sum(count > 1 for count in starts_of.values())
        lost = sum(not ends_of[id_] for id_ in ids)
        buckets = Counter(int((e.at - first) / BUCKET) for e in events if e.kind == "end")
        whole = range(int((last - first) / BUCKET))
        idle = sum(not buckets[number] for number in whole)
        least = min(buckets[number] for number in whole)
    return [
        f"| rolling restart of three daemons, {trials} times, each | none lost | {_row(seconds)} |",
        "",
        f"In the rolling restarts {runs:,} tasks ran: {twice} of them twice, {lost} lost; "
        f"{idle} of {len(whole):,} buckets of {BUCKET} s had no task finished (least: {least}).",
    ]


async def _load(bench: Bench, ids: list[str]) -> None:
    """Keep about two thousand tasks of a third of a second waiting, in forty groups."""
    async with publishing(bench.servers.rabbitmq.url, QUEUE, timeout=30.0) as publisher:
        while True:
            if len(ids) - bench.done() > BACKLOG:
                await asyncio.sleep(0.05)
                continue
            batch = [f"load-{len(ids) + number}" for number in range(100)]
            outgoing = [message(id_, "slow", f"e{bench.chance.randrange(40)}") for id_ in batch]
            await publisher.publish_all(outgoing)
            ids += batch


def _row(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{len(ordered)} | {statistics.median(ordered):.2f} | {p99:.2f} | {ordered[-1]:.2f}"


async def measure(trials: int, only: str) -> None:
    """Measure every figure and print it as Markdown."""
    folder = Path(tempfile.mkdtemp(prefix="groupflow-figures-"))
    chance = Random(1)
    print("| figure | goal | trials | median s | p99 s | worst s |\n|---|---|---|---|---|---|")
    async with private_servers() as servers:
        for figure in FIGURES:
            if only not in figure.name:
                continue
            found: list[float] = []
            while len(found) < trials:
                async with bench_on(servers, folder, chance) as bench:
                    found += await figure.round(bench)
            print(f"| {figure.name} | {figure.goal:g} s | {_row(found)} |", flush=True)
        if only in "rolling restart":
            for line in await rolling_restarts(servers, folder, chance, trials):
                print(line, flush=True)


def main() -> None:
    """Parse and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.verification.soak.figures", description=__doc__
    )
    parser.add_argument("--trials", type=int, default=30, help="at least so many of each")
    parser.add_argument("--only", default="", help="a part of a figure's name")
    options = parser.parse_args()
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # broken connections are the point
    asyncio.run(measure(options.trials, options.only))


if __name__ == "__main__":
    main()
