"""intake: from RabbitMQ into Redis, and on to the handler, beside a consumer that does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from typing import Any

from redis.asyncio import Redis

from groupflow.store.keys import Keys, split_entry
from tests.verification.bench.bench import Bench
from tests.verification.bench.daemons import Daemon, RunFailed
from tests.verification.bench.draining import WITHIN
from tests.verification.bench.filling import NAMESPACE, fill_queue
from tests.verification.bench.load import Load
from tests.verification.bench.peers.running import run_python
from tests.verification.bench.records import Records
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

TASKS, QUICK_TASKS = 20_000, 5_000
HEAD = 500  # messages that are on their way before the first is written: not counted anywhere
BARE = "bare aio-pika"
NO_PAGE = 'listen = ""'


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    load = Load(bench.pick(TASKS, QUICK_TASKS), 1_000)
    intake = Row("intake.alone", "intake alone, RabbitMQ → Redis, acked", "msg/s")
    intake.goal, intake.off = Goal(f"≥ 80 % of {BARE}", 0.8), "`--only intake`; no page"
    whole = Row("intake.end_to_end", "end to end, a full RabbitMQ queue → handled", "msg/s")
    whole.goal, whole.off = Goal(f"≥ 60 % of {BARE}", 0.6), "no page, which would start beside it"

    async def bare_of(row: Row) -> Turn:
        return Turn({row.key: await _bare(bench, load)})

    async def alone() -> Turn:
        return Turn({intake.key: await _take_in(bench, load)})

    async def to_the_end() -> Turn:
        records = await _end_to_end(bench, load)
        bench.judge(whole, OURS, records, load)
        return Turn({whole.key: records.rate})

    for row, ours in ((intake, alone), (whole, to_the_end)):
        row.beside = BARE
        if bench.wants(row.key):
            await take_turns(bench, [row], {OURS: ours, BARE: partial(bare_of, row)})
            yield row


async def _bare(bench: Bench, load: Load) -> float:
    url = await bench.rabbitmq()
    with bench.folder() as folder:
        records = await run_python(
            "bare_consumer", load, folder, workers=1, seconds=60.0, facts={"url": url}
        )
    return Records(records.rows[HEAD:]).rate


async def _take_in(bench: Bench, load: Load) -> float:
    """Messages a second that come to lie in Redis, by the arrivals that Redis's clock gave them."""
    async with bench.corner() as corner, Redis.from_url(corner.redis) as redis:
        await fill_queue(corner.rabbitmq, corner.folder.name, load)
        async with corner.daemon(load, only="intake", http=NO_PAGE) as daemon:
            await _until_queued(redis, load, daemon)
            arrivals = await _arrivals(redis, load)
    return (len(arrivals) - HEAD - 1) * 1e6 / (arrivals[-1] - arrivals[HEAD])


async def _until_queued(redis: Redis, load: Load, daemon: Daemon) -> None:
    async with asyncio.timeout(WITHIN):
        while int(await redis.hget(Keys(NAMESPACE)("count"), "queued_grouped") or 0) < load.tasks:
            if daemon.process.poll() is not None:
                raise RunFailed(f"a daemon died:\n{daemon.tail()}")
            await asyncio.sleep(0.05)


async def _arrivals(redis: Redis, load: Load) -> list[int]:
    """All arrivals, rising.

    Raises:
        RunFailed: a lane is out of order, or a task is missing.
    """
    found: list[int] = []
    keys = Keys(NAMESPACE)
    for group in range(load.groups):
        lane: list[Any] = await redis.lrange(keys("lane", f"g{group}"), 0, -1)
        entries = [split_entry(entry) for entry in reversed(lane)]
        if any(int(one[1]) >= int(other[1]) for one, other in pairwise(entries)):
            raise RunFailed(f"intake put the lane of group {group} out of order")
        found += [arrival for arrival, _ in entries]
    if len(found) != load.tasks:
        raise RunFailed(f"intake took in {len(found)} of {load.tasks} messages")
    return sorted(found)


async def _end_to_end(bench: Bench, load: Load) -> Records:
    """With a queue that is full when the daemon starts."""
    async with bench.corner() as corner:
        await fill_queue(corner.rabbitmq, corner.folder.name, load)
        async with corner.daemon(load, http=NO_PAGE) as daemon:
            await daemon.until(WITHIN)
        return Records.read([daemon.records])
