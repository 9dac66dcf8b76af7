"""Everything that a fault can reach: servers, proxies, daemons, the workload."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.store.keys import Keys
from tests.history.events import Journal
from tests.soak.config import LEASE, NAMESPACE, write_config
from tests.soak.daemons import Slot
from tests.soak.proxy import Proxy
from tests.soak.workload import Workload

DISK = 192  # MB of the file system that Redis has for itself


class PatientRabbitmq(RabbitmqServer):
    """A RabbitMQ that may take its time to stop: a kill halfway is a fault of its own."""

    stop_within: ClassVar[float] = 60.0


@dataclass(slots=True)
class World:
    """A running world.

    Attributes:
        folder: where all of it is written.
        redis: the server; `redis_wire` is the proxy that daemons reach it through.
        rabbitmq: the same; the publisher comes through its proxy too.
        slots: the daemons.
        workload: the publisher.
        journal: the events.
        disk: Redis's own small file system, ``None`` where none could be mounted.
        lease: of the daemons, seconds.
        broken: what no fault explains, as it was noticed.
    """

    folder: Path
    redis: RedisServer
    rabbitmq: RabbitmqServer
    redis_wire: Proxy
    rabbitmq_wire: Proxy
    slots: list[Slot]
    workload: Workload
    journal: Journal
    disk: Path | None
    lease: float = LEASE
    broken: list[str] = field(default_factory=list)

    def ask(self) -> Redis:
        """A client of Redis that passes the proxy by."""
        return Redis.from_url(
            self.redis.url,
            socket_timeout=2.0,
            socket_connect_timeout=2.0,
            retry=Retry(NoBackoff(), 0),
        )

    async def counts(self) -> dict[str, int] | None:
        """The store's own totals, ``None`` while Redis doesn't answer."""
        async with self.ask() as client:
            with suppress(Exception):
                found: Any = await client.hgetall(Keys(NAMESPACE)("count"))
                return {name.decode(): int(total) for name, total in found.items()}
        return None


@asynccontextmanager
async def world(folder: Path, *, seed: int, daemons: int, rate: float) -> AsyncIterator[World]:
    """Start servers, proxies and daemons; the workload is the caller's to run."""
    async with AsyncExitStack() as stack:
        disk = await _small_disk(stack)
        # On a slow disk `everysec` may put off a write for as long as the last fsync takes, and a
        # kill -9 then loses what was answered already: that is Redis's promise, not ours. On a file
        # system in memory an fsync takes no time; elsewhere Redis has to be stricter.
        strict = () if disk else ("--appendfsync", "always")
        redis = RedisServer((disk or folder) / "redis", extra=strict)
        rabbitmq = PatientRabbitmq(folder / "rabbitmq")
        stack.push_async_callback(redis.stop)
        stack.push_async_callback(rabbitmq.stop)
        async with asyncio.TaskGroup() as starts:
            starts.create_task(redis.start())
            starts.create_task(rabbitmq.start())
        wires = [Proxy(redis.port), Proxy(rabbitmq.port)]
        for wire in wires:
            await wire.start()
            stack.push_async_callback(wire.stop)
        redis_wire, rabbitmq_wire = wires
        config = write_config(
            folder / "groupflow.toml", rabbitmq=rabbitmq_wire.port, redis=redis_wire.port
        )
        slots = [Slot(number, folder, config) for number in range(daemons)]
        journal = Journal(folder / "history.jsonl")
        through_wire = f"amqp://guest:guest@127.0.0.1:{rabbitmq_wire.port}/"
        workload = Workload(through_wire, journal, seed, rate=rate)
        for slot in slots:
            stack.push_async_callback(slot.kill)
            await slot.start()
        yield World(
            folder, redis, rabbitmq, redis_wire, rabbitmq_wire, slots, workload, journal, disk
        )


async def _small_disk(stack: AsyncExitStack) -> Path | None:
    """A file system of its own for Redis, or ``None`` where nobody lets us mount one."""
    folder = Path(tempfile.mkdtemp(prefix="groupflow-soak-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "none", str(folder)]
    try:
        await asyncio.to_thread(subprocess.run, mount, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        await asyncio.to_thread(folder.rmdir)
        return None

    async def unmount() -> None:
        done = await asyncio.to_thread(
            subprocess.run,
            ["umount", "-l", str(folder)],
            check=False,
            capture_output=True,
            timeout=60,
        )
        if done.returncode == 0:
            await asyncio.to_thread(folder.rmdir)

    stack.push_async_callback(unmount)
    return folder
