"""intake: from RabbitMQ into Redis, and on to the handler, beside a consumer that does nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

from redis.asyncio import Redis

from groupflow.store.keys import Keys, split_entry
from tests.verification.bench.bench import Bench, Turn
from tests.verification.bench.daemons import WITHIN, RunFailed
from tests.verification.bench.filling import NAMESPACE, fill_queue
from tests.verification.bench.load import Load
from tests.verification.bench.peers.running import run_peer
from tests.verification.bench.records import Records
from tests.verification.bench.rows import OURS, Goal, Row

HEAD = 500  # messages that are on their way before the first is written: not counted anywhere
BARE = "bare aio-pika"
NO_PAGE = 'listen = ""'


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    load = Load(bench.pick(20_000, 5_000), 1_000)
    intake = Row("intake.alone", "intake alone, RabbitMQ → Redis, acked", "msg/s")
    intake.goal, intake.off = Goal(f"≥ 80 % of {BARE}", 0.8), "`--only intake`; no page"
    whole = Row("intake.end_to_end", "end to end, a full RabbitMQ queue → handled", "msg/s")
    whole.goal, whole.off = Goal(f"≥ 60 % of {BARE}", 0.6), "no page, which would start beside it"

    async def bare() -> Turn:
        with bench.folder() as folder:
            records = await run_peer("bare", load, folder, await bench.rabbitmq(), workers=1)
        rate = Records(records.rows[HEAD:]).rate
        return Turn({intake.key: rate, whole.key: rate})

    async def alone() -> Turn:
        return Turn({intake.key: await _take_in(bench, load)})

    async def to_the_end() -> Turn:
        """With a queue that is full when the daemon starts."""
        async with bench.corner() as corner:
            await fill_queue(corner.rabbitmq, corner.queue, load)
            async with corner.daemon(load, http=NO_PAGE) as daemon:
                await daemon.until(WITHIN)
            records = daemon.records
        bench.judge(whole, records, load)
        return Turn({whole.key: records.rate})

    for row, ours in ((intake, alone), (whole, to_the_end)):
        row.beside = BARE
        if bench.wants(row.key):
            await bench.take_turns([row], {OURS: ours, BARE: bare})
            yield row


async def _take_in(bench: Bench, load: Load) -> float:
    """Messages a second that come to lie in Redis, by the arrivals that Redis's clock gave them."""
    async with bench.corner() as corner, Redis.from_url(corner.redis) as redis:
        await fill_queue(corner.rabbitmq, corner.queue, load)
        async with corner.daemon(load, only="intake", http=NO_PAGE) as daemon:
            await daemon.until_total(redis, "queued_grouped", load.tasks)
            arrivals = await _arrivals(redis, load)
    return (len(arrivals) - HEAD - 1) * 1e6 / (arrivals[-1] - arrivals[HEAD])


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
