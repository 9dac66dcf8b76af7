"""One run of ours: a filled store, a daemon, its records, and what it cost in processor time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from groupflow.servers.redis import RedisServer
from tests.bench.daemons import Setting, cpu_of, running
from tests.bench.filling import NAMESPACE, fill_store
from tests.bench.load import Load
from tests.bench.records import Records

WITHIN = 300.0  # seconds for a run; one that takes longer is broken
LOOK = 0.1  # seconds between two looks at the total where several daemons share a load


async def calls_of(redis: Redis) -> int:
    """Round trips so far: scripts called, not what they call."""
    stats: dict[str, Any] = await redis.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


async def drain(
    folder: Path,
    load: Load,
    *,
    workers: int,
    daemons: int = 1,
    plain: bool = False,
) -> Records:
    """Fill a fresh Redis, let daemons drain it, and read what they recorded.

    Args:
        folder: of this run, empty.
        load: what to fill it with.
        workers: of each daemon.
        daemons: how many share the load.
        plain: whether the tasks are plain ones, and the workers too.

    Raises:
        RunFailed: a daemon died, or did not get to the end.
    """
    async with RedisServer(folder / "redis") as server, Redis.from_url(server.url) as redis:
        await fill_store(server.url, load, plain=plain)
        before, calls = cpu_of(server.pid), await calls_of(redis)
        setting = Setting(
            server.url, grouped=0 if plain else workers, plain=workers if plain else 0
        )
        async with AsyncExitStack() as stack:
            started = [
                await stack.enter_async_context(running(setting, load, folder, f"d{n}"))
                for n in range(daemons)
            ]
            if daemons == 1:
                await started[0].until(WITHIN)
            else:
                await _until_done(redis, load.tasks)
            cpu = sum(daemon.cpu - daemon.cpu_at_start for daemon in started)
            redis_cpu = cpu_of(server.pid) - before
            calls = await calls_of(redis) - calls
        return replace(
            Records.read([daemon.records for daemon in started]),
            cpu=cpu,
            redis_cpu=redis_cpu,
            redis_calls=calls,
        )


async def _until_done(redis: Redis, tasks: int) -> None:
    key = f"{{{NAMESPACE}}}:count"
    async with asyncio.timeout(WITHIN):
        while int(await redis.hget(key, "done") or 0) < tasks:
            await asyncio.sleep(LOOK)
