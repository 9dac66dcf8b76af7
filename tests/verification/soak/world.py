"""Everything that a fault can reach: servers, proxies, daemons, the workload."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from groupflow.servers import RedisServer, ServerFailed
from tests.history.configuration import LEASE, write_config
from tests.history.events import Journal
from tests.servers.proxy import Proxy
from tests.servers.replicated import RedisCluster
from tests.verification.soak.brokers import Brokers, ManyRabbitmqs, OneRabbitmq, Wires, amqp
from tests.verification.soak.daemons import Slot
from tests.verification.soak.links import Links
from tests.verification.soak.stores import PARTITIONS, Clustered, OneRedis, Store, counts_of
from tests.verification.soak.workload import Workload

DISK = 192  # MB of the file system that Redis has for itself


@dataclass(slots=True)
class World:
    """A running world.

    Attributes:
        folder: where all of it is written.
        store: what daemons store in.
        rabbitmq: its nodes; daemons and publisher reach them through `rabbitmq_wire`.
        slots: the daemons.
        workload: the publisher.
        journal: the events.
        disk: Redis's own small file system, ``None`` where none could be mounted.
        one: where there is a single Redis: it, and the proxy that daemons reach it through.
        cluster: where there is a cluster.
        links: the network among its nodes, and before them.
        lease: of the daemons, seconds.
        broken: what no fault explains, as it was noticed.
    """

    folder: Path
    store: Store
    rabbitmq: Brokers
    rabbitmq_wire: Wires
    slots: list[Slot]
    workload: Workload
    journal: Journal
    disk: Path | None
    one: tuple[RedisServer, Proxy] | None = None
    cluster: RedisCluster | None = None
    links: Links | None = None
    lease: float = LEASE
    broken: list[str] = field(default_factory=list)

    @property
    def redis(self) -> RedisServer:
        """The single Redis."""
        assert self.one is not None
        return self.one[0]

    @property
    def redis_wire(self) -> Proxy:
        """The way to it."""
        assert self.one is not None
        return self.one[1]

    def ask(self) -> Redis:
        """A client of the single Redis that passes the proxy by."""
        return Redis.from_url(
            self.redis.url,
            socket_timeout=2.0,
            socket_connect_timeout=2.0,
            retry=Retry(NoBackoff(), 0),
        )

    @property
    def rabbitmq_url(self) -> str:
        """All nodes of RabbitMQ, past the proxies."""
        return amqp([node.port for node in self.rabbitmq.nodes])

    async def serves(self) -> bool:
        """Whether each partition has a node that leads it; a single Redis is always waited for."""
        if self.cluster is None:
            return True
        try:
            async with asyncio.timeout(1.0):
                for partition in self.store.partitions:
                    await self.cluster.leader_of(partition("count"))
        except (ServerFailed, OSError):
            return False
        return True

    async def counts(self) -> dict[str, int] | None:
        """The store's own totals, ``None`` while it doesn't answer."""
        return await asyncio.to_thread(counts_of, self.store)


@asynccontextmanager
async def world(
    folder: Path, *, seed: int, daemons: int, rate: float, clustered: bool = False
) -> AsyncIterator[World]:
    """Start servers, proxies and daemons; the workload is the caller's to run."""
    async with AsyncExitStack() as stack:
        disk = await _small_disk(stack)
        rabbitmq: Brokers = (ManyRabbitmqs if clustered else OneRabbitmq)(folder / "rabbitmq")
        stack.push_async_callback(rabbitmq.stop)
        one, cluster, links = None, None, None
        async with asyncio.TaskGroup() as starts:
            starts.create_task(rabbitmq.start())
            if clustered:
                links = Links()
                cluster = RedisCluster((disk or folder) / "cluster", make=links.make)
                await links.start()
                stack.push_async_callback(links.stop)
                stack.push_async_callback(cluster.stop)
                starts.create_task(cluster.start())
            else:
                # On a slow disk `everysec` may put off a write for as long as the last fsync takes,
                # and a kill -9 then loses what was answered already: that is Redis's promise, not
                # ours. On a file system in memory an fsync takes no time; elsewhere Redis has to be
                # stricter.
                strict = () if disk else ("--appendfsync", "always")
                redis = RedisServer((disk or folder) / "redis", extra=strict)
                stack.push_async_callback(redis.stop)
                starts.create_task(redis.start())
        rabbitmq_wire = Wires(rabbitmq.nodes)
        await rabbitmq_wire.start()
        stack.push_async_callback(rabbitmq_wire.stop)
        store: Store
        settings: dict[str, Any]
        if cluster is not None:
            store = Clustered(cluster)
            # A message is acked once a replica has it too: so no node that dies takes one along.
            settings = {"url": cluster.url, "partitions": PARTITIONS, "replicas": 1}
        else:
            wire = Proxy(redis.port)
            await wire.start()
            stack.push_async_callback(wire.stop)
            one, store = (redis, wire), OneRedis(redis)
            settings = {"url": f"redis://127.0.0.1:{wire.port}/0"}
        file = folder / "groupflow.toml"
        config = write_config(file, rabbitmq=rabbitmq_wire.url, redis=settings)
        slots = [Slot(number, folder, config) for number in range(daemons)]
        journal = Journal(folder / "history.jsonl")
        workload = Workload(rabbitmq_wire.url, journal, seed, rate=rate)
        for slot in slots:
            stack.push_async_callback(slot.kill)
            await slot.start()
        yield World(
            *(folder, store, rabbitmq, rabbitmq_wire, slots, workload, journal, disk),
            one=one,
            cluster=cluster,
            links=links,
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
