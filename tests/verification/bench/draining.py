"""One run of ours: a daemon takes a load in, stands paused until all of it waits, and drains it.

So the tasks came through RabbitMQ, the daemon is as settings have it by default, with its page, and
nothing is still starting when the clock does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from groupflow.servers.redis import RedisServer
from groupflow.store.partitions import keys_of
from tests.verification.bench import clocks
from tests.verification.bench.bench import Bench
from tests.verification.bench.daemons import REPOSITORY, Daemon, RunFailed, Setting, cpu_of, running
from tests.verification.bench.filling import NAMESPACE, fill_queue, forget_queue
from tests.verification.bench.load import Load
from tests.verification.bench.records import Records

WITHIN = 300.0  # seconds for a run; one that takes longer is broken
LOOK = 0.1  # seconds between two looks at a total
TAKEN = b"groupflow_messages_taken_total"


@dataclass(slots=True)
class Loaded:
    """Daemons that have a load before them and stand paused.

    Attributes:
        daemons: they share the load.
        nodes: their store's servers, most often one.
        ports: of the daemons' pages.
        records: what they did; there once they have ended.
    """

    daemons: list[Daemon]
    nodes: list[Redis]
    ports: list[int]
    records: Records = field(default_factory=Records)

    async def resume(self) -> None:
        """Let them begin."""
        await self.daemons[0].ask("resume", "--all")


async def drain(
    bench: Bench,
    load: Load,
    *,
    workers: int,
    daemons: int = 1,
    partitions: int = 1,
    processes: int = 0,
    run: int = 1,
    code: Path = REPOSITORY,
) -> Records:
    """Let daemons take a load in and drain it, and read what they recorded.

    Args:
        bench: has the servers.
        load: the tasks.
        workers: for grouped tasks, of each daemon.
        daemons: how many share the load.
        partitions: over which the load lies.
        processes: of a Redis Cluster that they lie on; without any, it is one Redis by itself.
        run: of the rule.
        code: where the package is that they run.

    Raises:
        RunFailed: a daemon died, or did not get to the end.
    """
    setting = Setting("", grouped=workers, partitions=partitions, run=run)
    async with loaded(
        bench, setting, [load], daemons=daemons, processes=processes, code=code
    ) as whole:
        calls = await _calls_of(whole.nodes)
        await whole.resume()
        if daemons == 1:
            await whole.daemons[0].until(WITHIN)
        else:
            await _until_done(whole.nodes[0], partitions, load.tasks)
        calls = await _calls_of(whole.nodes) - calls
    return replace(whole.records, redis_calls=calls / load.tasks)


@asynccontextmanager
async def loaded(
    bench: Bench,
    setting: Setting,
    loads: Sequence[Load],
    *,
    firsts: Sequence[int] = (0,),
    daemons: int = 1,
    processes: int = 0,
    code: Path = REPOSITORY,
) -> AsyncIterator[Loaded]:
    """Start daemons on fresh servers' corners, let them take loads in, and hand them out paused.

    Args:
        bench: has the servers.
        setting: but for the servers.
        loads: what is published, one after another.
        firsts: with which number each load begins.
        daemons: how many there are.
        processes: of a Redis Cluster; without any, it is one Redis by itself.
        code: where the package is that they run.
    """
    rabbitmq = await bench.rabbitmq()
    tasks = sum(load.tasks for load in loads)
    whole = replace(loads[0], tasks=tasks)
    async with AsyncExitStack() as whole_stack:
        servers, url, folder = await _store(bench, whole_stack, processes)
        pids = [server.pid for server in servers]
        nodes = [
            await whole_stack.enter_async_context(Redis.from_url(server.url)) for server in servers
        ]
        queue = folder.name
        own = replace(setting, redis=url, rabbitmq=rabbitmq, queue=queue)
        async with AsyncExitStack() as stack:
            started = [
                await stack.enter_async_context(
                    running(own, whole, folder, f"d{n}", code=code, redis=pids)
                )
                for n in range(daemons)
            ]
            run = Loaded(started, nodes, [await daemon.page() for daemon in started])
            await started[0].ask("pause", "--all")
            cpu, redis_cpu = sum(each.cpu for each in started), sum(map(cpu_of, pids))
            for load, first in zip(loads, firsts, strict=True):
                await fill_queue(rabbitmq, queue, load, first)
            await _until_taken(run, tasks)
            cpu = sum(each.cpu for each in started) - cpu
            redis_cpu = sum(map(cpu_of, pids)) - redis_cpu
            yield run
        run.records = replace(
            _recorded(started, tasks),
            intake_cpu=cpu / tasks * 1e6,
            enqueue_cpu=redis_cpu / tasks * 1e6,
        )
        await forget_queue(rabbitmq, queue)


async def _store(
    bench: Bench, stack: AsyncExitStack, processes: int
) -> tuple[Sequence[RedisServer], str, Path]:
    """Fresh servers, where the store is, and an empty folder, until the stack ends."""
    if processes:
        cluster, folder = await stack.enter_async_context(bench.cluster(processes))
        return cluster.primaries, cluster.url, folder
    server, folder = await stack.enter_async_context(bench.redis())
    return [server], server.url, folder


def _recorded(ended: list[Daemon], tasks: int) -> Records:
    records = Records.read([daemon.records for daemon in ended])
    noted = ended[0].records.with_suffix(".clocks")
    if len(ended) > 1 or not noted.exists():  # a share of the load: no task was the last
        return records
    cpu, redis_cpu = clocks.read(noted, tasks)
    return replace(records, cpu=cpu, redis_cpu=redis_cpu)


async def _until_taken(run: Loaded, tasks: int) -> None:
    async with asyncio.timeout(WITHIN):
        while sum([await _taken(port) for port in run.ports]) < tasks:
            for daemon in run.daemons:
                if daemon.process.poll() is not None:
                    raise RunFailed(f"a daemon died:\n{daemon.tail()}")
            await asyncio.sleep(LOOK)


async def _taken(port: int) -> int:
    """Messages that a daemon has taken in, as its metrics say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    said = await reader.read()
    writer.close()
    found = [line.split()[1] for line in said.splitlines() if line.startswith(TAKEN + b" ")]
    return int(float(found[0])) if found else 0


async def _calls_of(nodes: Sequence[Redis]) -> int:
    """Round trips so far: scripts called, not what they call."""
    stats: list[dict[str, Any]] = [await node.info("commandstats") for node in nodes]
    return sum(int(each.get("cmdstat_evalsha", {}).get("calls", 0)) for each in stats)


async def _until_done(redis: Redis, partitions: int, tasks: int) -> None:
    counts = [keys("count") for keys in keys_of(NAMESPACE, partitions)]
    async with asyncio.timeout(WITHIN):
        while sum([int(await redis.hget(key, "done") or 0) for key in counts]) < tasks:
            await asyncio.sleep(LOOK)
