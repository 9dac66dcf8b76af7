"""One run of ours: a daemon takes a load in, stands paused until all of it waits, and drains it.

So the tasks came through RabbitMQ, the daemon is as settings have it by default, with its page, and
nothing is still starting when the clock does.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from tests.verification.bench.bench import Bench
from tests.verification.bench.daemons import WITHIN
from tests.verification.bench.filling import fill_queue
from tests.verification.bench.load import Load
from tests.verification.bench.records import Records, cpu_of, read_clocks

FLOOD = 1_000_000
"""The numbers of a flood begin here."""


async def drain(
    bench: Bench,
    load: Load,
    *,
    flood: Load | None = None,
    daemons: int = 1,
    partitions: int = 1,
    code: Path | None = None,
    **facts: Any,
) -> Records:
    """Let daemons take a load in and drain it, and read what they recorded.

    Args:
        bench: has the servers.
        load: the tasks.
        flood: more of them, queued behind the others.
        daemons: how many share the load.
        partitions: over which the load lies.
        code: where the package is that they run, if not here.
        facts: of their `Setting`.

    Raises:
        RunFailed: a daemon died, or did not get to the end.
    """
    tasks = load.tasks + (flood.tasks if flood else 0)
    whole = replace(load, tasks=tasks)
    async with bench.corner() as corner, Redis.from_url(corner.redis) as redis:
        async with AsyncExitStack() as stack:
            started = [
                await stack.enter_async_context(
                    corner.daemon(whole, f"d{n}", code, partitions=partitions, **facts)
                )
                for n in range(daemons)
            ]
            for each in started:
                await each.page()
            first, redis_pid = started[0], corner.server.pid
            await first.ask("pause", "--all")
            cpu, redis_cpu = sum(each.cpu for each in started), cpu_of(redis_pid)
            await fill_queue(corner.rabbitmq, corner.queue, load)
            if flood:
                await fill_queue(corner.rabbitmq, corner.queue, flood, FLOOD)
            await first.until_total(redis, "taken", tasks, partitions)
            cpu = sum(each.cpu for each in started) - cpu
            redis_cpu = cpu_of(redis_pid) - redis_cpu
            await first.ask("resume", "--all")
            if daemons == 1:
                await first.until(WITHIN)
            else:
                await first.until_total(redis, "done", tasks, partitions)
        found = Records.read([each.file for each in started])
        found = replace(found, intake_cpu=cpu / tasks * 1e6, enqueue_cpu=redis_cpu / tasks * 1e6)
        if daemons > 1:  # a share of the load: for none a task was the last
            return found
        own, of_redis = read_clocks(first.file.with_suffix(".clocks"), tasks)
        return replace(found, cpu=own, redis_cpu=of_redis)
