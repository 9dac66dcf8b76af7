"""Everything that a fault can reach: servers, proxies, daemons, the workload."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, ClassVar

import redis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as ClusterClient
from redis.exceptions import RedisClusterException, RedisError

from groupflow.servers import RabbitmqServer, RedisServer, ServerFailed
from groupflow.servers.process import ServerProcess
from groupflow.store.keys import Keys
from groupflow.store.partitions import keys_of
from tests.broker.wires import bind
from tests.endtoend.process import REPOSITORY, environment, groupflow
from tests.history.configuration import NAMESPACE, QUEUE, TOLD, write_config
from tests.history.events import Journal, killed
from tests.servers.proxy import Proxy
from tests.servers.rabbitmq_cluster import RabbitmqCluster
from tests.servers.replicated import RedisCluster
from tests.verification.clock import Clock
from tests.verification.soak.handlers import JOURNAL
from tests.verification.soak.links import Links
from tests.verification.soak.workload import Workload

DISK = 192  # MB of the file system that Redis has for itself, for each of its nodes
NODES, PARTITIONS = 6, 6  # of a cluster
WITHIN: Any = {"socket_timeout": 2.0, "socket_connect_timeout": 2.0}  # seconds


class SlowStopRabbitmq(RabbitmqServer):
    """A RabbitMQ that may take its time to stop: a kill halfway is a fault of its own."""

    stop_within: ClassVar[float] = 60.0


def amqp(nodes: Sequence[Proxy | RabbitmqServer]) -> str:
    """A URL of nodes, or of the ways to them."""
    return f"amqp://guest:guest@{','.join(f'127.0.0.1:{node.port}' for node in nodes)}/"


@dataclass(slots=True)
class World:
    """A running world: on one Redis and one RabbitMQ, or on a cluster of each.

    Attributes:
        folder: where all of it is written.
        partitions: of the daemons' namespace.
        nodes: of RabbitMQ.
        rabbitmq_wires: the way of daemons and publisher to each of these.
        slots: the daemons.
        workload: the publisher.
        journal: the events.
        disk: Redis's own small file system, ``None`` where none could be mounted.
        one: where there is a single Redis: it, and the proxy that daemons reach it through.
        cluster: where there is one of Redis: it, and the network among its nodes, and before them.
        rabbitmq_cluster: where RabbitMQ is one.
        broken: what no fault explains, as it was noticed.
        changes_of_leaders: how often another node came to lead a partition.
        tells: whether RabbitMQ is told of ends; an older build may know nothing of that.
    """

    folder: Path
    partitions: list[Keys]
    nodes: Sequence[RabbitmqServer]
    rabbitmq_wires: list[Proxy]
    slots: list[Slot]
    workload: Workload
    journal: Journal
    disk: Path | None
    one: tuple[RedisServer, Proxy] | None = None
    cluster: tuple[RedisCluster, Links] | None = None
    rabbitmq_cluster: RabbitmqCluster | None = None
    broken: list[str] = field(default_factory=list)
    changes_of_leaders: int = 0
    tells: bool = True

    @property
    def redis(self) -> RedisServer:
        """The single Redis."""
        assert self.one is not None
        return self.one[0]

    @property
    def wire(self) -> Proxy:
        """The proxy that daemons reach the single Redis through."""
        assert self.one is not None
        return self.one[1]

    def ask(self) -> Redis:
        """A client of the single Redis that passes the proxy by."""
        return Redis.from_url(self.redis.url, **WITHIN, retry=Retry(NoBackoff(), 0))

    def client(self) -> Any:
        """A plain client, past all proxies; made each time: nodes have come and gone."""
        if self.cluster is None:
            return redis.Redis.from_url(self.redis.url, **WITHIN)
        node_at: Any = partial(ClusterNode, "127.0.0.1")
        nodes = [node_at(node.port) for node in self.cluster[0].nodes if node.running]
        return ClusterClient(startup_nodes=nodes, **WITHIN)

    async def queue_leader(self) -> RabbitmqServer:
        """The node of RabbitMQ that leads the queue, or any where no node says."""
        with suppress(ServerFailed):  # a fault has just deleted it
            if self.rabbitmq_cluster is not None:
                return await self.rabbitmq_cluster.leader_of(QUEUE)
        return self.nodes[0]

    async def serves(self) -> bool:
        """Whether each partition has a node that leads it; a single Redis is always waited for."""
        if self.cluster is None:
            return True
        try:
            async with asyncio.timeout(1.0):
                for partition in self.partitions:
                    await self.cluster[0].leader_of(partition("count"))
        except (ServerFailed, OSError):
            return False
        return True

    async def counts(self) -> dict[str, int] | None:
        """The store's own totals, ``None`` while a partition doesn't answer."""
        return await asyncio.to_thread(self._counts)

    def _counts(self) -> dict[str, int] | None:
        totals: Counter[str] = Counter()
        with suppress(RedisError, RedisClusterException, OSError):
            with closing(self.client()) as client:
                for keys in self.partitions:
                    found: Any = client.hgetall(keys("count"))
                    totals.update({name.decode(): int(total) for name, total in found.items()})
            return dict(totals)
        return None


@asynccontextmanager
async def world(
    folder: Path, *, seed: int, daemons: int, rate: float = 80.0, clustered: bool = False,
    builds: Sequence[Path] = (REPOSITORY,),
) -> AsyncIterator[World]:  # fmt: skip
    """Start servers, proxies and daemons; the workload is the caller's to run.

    Its rate is messages a second. Daemons are of the builds in turn: each that is started is of the
    next one.
    """
    async with AsyncExitStack() as stack:
        disk = await _small_disk(stack, DISK * (NODES if clustered else 1))
        many = RabbitmqCluster(folder / "rabbitmq") if clustered else None
        nodes: Sequence[RabbitmqServer]
        nodes = many.nodes if many else [SlowStopRabbitmq(folder / "rabbitmq")]
        rabbitmq = many or nodes[0]
        stack.push_async_callback(rabbitmq.stop)
        one, cluster = None, None
        settings: dict[str, Any]
        async with asyncio.TaskGroup() as starts:
            starts.create_task(rabbitmq.start())
            if clustered:
                cluster = await _cluster(disk or folder, stack)
                starts.create_task(cluster[0].start())
                # A message is acked once a replica has it too: no node that dies takes one along.
                settings = {"url": cluster[0].url, "partitions": PARTITIONS, "replicas": 1}
            else:
                # On a slow disk `everysec` may put off a write for as long as the last fsync takes,
                # and a kill -9 then loses what was answered already: that is Redis's promise, not
                # ours. On a file system in memory an fsync takes no time; elsewhere Redis has to be
                # stricter.
                strict = () if disk else ("--appendfsync", "always")
                single = RedisServer((disk or folder) / "redis", extra=strict)
                stack.push_async_callback(single.stop)
                starts.create_task(single.start())
        if cluster is None:
            one = single, await _wire(single.port, stack)
            settings = {"url": f"redis://127.0.0.1:{one[1].port}/0"}
        kept = {"x-queue-type": "quorum"} if clustered else {}
        await bind(amqp(nodes), TOLD, **kept)
        wires = [await _wire(node.port, stack) for node in nodes]
        file = folder / "groupflow.toml"
        tells = len(builds) == 1
        config = write_config(file, rabbitmq=amqp(wires), redis=settings, tells=tells)
        slots = [Slot(number, folder, config, builds) for number in range(daemons)]
        journal = Journal(folder / "history.jsonl")
        workload = Workload(amqp(wires), journal, seed, rate=rate)
        for slot in slots:
            stack.push_async_callback(slot.kill)
            await slot.start()
        partitions = keys_of(NAMESPACE, settings.get("partitions", 1))
        yield World(
            *(folder, partitions, nodes, wires, slots, workload, journal, disk, one, cluster, many),
            tells=tells,
        )


async def _wire(port: int, stack: AsyncExitStack) -> Proxy:
    wire = Proxy(port)
    await wire.start()
    stack.push_async_callback(wire.stop)
    return wire


async def _cluster(folder: Path, stack: AsyncExitStack) -> tuple[RedisCluster, Links]:
    """A cluster that is still to be started, and its network."""
    links = Links()
    cluster = RedisCluster(folder / "cluster", make=links.make)
    await links.start()
    stack.push_async_callback(links.stop)
    stack.push_async_callback(cluster.stop)
    return cluster, links


async def _small_disk(stack: AsyncExitStack, size: int) -> Path | None:
    """A file system of some MB for Redis, or ``None`` where the kernel lets us mount none."""
    folder = Path(tempfile.mkdtemp(prefix="groupflow-soak-disk-"))
    try:
        await _run("mount", "-t", "tmpfs", "-o", f"size={size}m", "none", str(folder))
    except (OSError, subprocess.CalledProcessError):
        await asyncio.to_thread(folder.rmdir)
        return None

    async def unmount() -> None:
        with suppress(subprocess.CalledProcessError):
            await _run("umount", "-l", str(folder))
            await asyncio.to_thread(folder.rmdir)

    stack.push_async_callback(unmount)
    return folder


async def _run(*command: str) -> None:
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, timeout=60)


APP = "tests.verification.soak.handlers:app"
END_WITHIN = 30.0  # seconds before a SIGTERM becomes a SIGKILL


class Slot:
    """A place for one daemon: started again, it may change its name, and is of the next build.

    Attributes:
        index: which.
        name: of its present daemon.
        should_run: whether a daemon that isn't there has ended by itself.
        clock: the wall clock that its daemons see.
    """

    def __init__(self, index: int, folder: Path, config: Path, builds: Sequence[Path]) -> None:
        self.index, self.name = index, f"d{index}"
        self.should_run = False
        self.log = folder / f"daemon-{index}.log"
        self.clock = Clock(folder / f"clock-{index}")
        self._folder, self._config, self._builds = folder, config, cycle(builds)
        self._renamed = 0
        self._process: ServerProcess | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its process is there, stopped or not."""
        return self._process is not None and self._process.alive

    async def start(self) -> None:
        """Start a daemon under the slot's name."""
        self._process = await self._spawn()
        self.should_run = True

    async def _spawn(self) -> ServerProcess:
        build = next(self._builds)
        told = {"PYTHONPATH": str(build), JOURNAL: str(self._folder / "history.jsonl")}
        words = ("--config", self._config, "--app", APP, "--name", self.name)
        command = groupflow("run", *words, build=build)
        variables = environment(**told, **self.clock.environment)
        return await ServerProcess.spawn(command, log=self.log, environment=variables)

    def rename(self) -> None:
        """Give the next daemon of this slot a name that no daemon had."""
        self._renamed += 1
        self.name = f"d{self.index}-{self._renamed}"

    def pause(self) -> None:
        """Stop its process as it is."""
        self._running().signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let its process go on."""
        self._running().signal_group(signal.SIGCONT)

    async def kill(self) -> None:
        """kill -9."""
        self.should_run = False
        if self._process is not None and self._process.alive:
            await self._process.kill()
            Journal(self._folder / "history.jsonl").write(killed(self._process.pid))

    async def terminate(self) -> float:
        """SIGTERM, and wait for the end. Returns the seconds that it took."""
        self.should_run = False
        began = time.monotonic()
        if self._process is not None:
            await self._process.terminate(END_WITHIN)
        return time.monotonic() - began

    async def usurp(self) -> ServerProcess:
        """Start a second daemon under the same name; returns the process of the first."""
        first = self._running()
        self._process = await self._spawn()
        return first

    async def keep(self, process: ServerProcess) -> None:
        """Go back to the process that `usurp` returned, where it is the one that is left."""
        await self._running().wait()
        self._process = process

    def _running(self) -> ServerProcess:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    def last_words(self, lines: int = 12) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
