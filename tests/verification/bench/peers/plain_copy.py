"""A plain copy of the loop that groupflow's design came from: queue lock, scan, LREM.

Written from its description. Its polls of 0.8 s and 2 s are shortened to a millisecond, in its
favour; all else is as described, faults included.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis

from tests.verification.bench.load import number_in
from tests.verification.bench.peers.spec import Spec, main

QUEUE, LOCK = "queue", "queue:lock"
POLL = 0.001  # seconds
PAGE = 100  # tasks looked at in one LRANGE
LOCKED = 300  # seconds that a lock lives


async def run(spec: Spec) -> None:
    """Fill the list, then let all workers loop over it."""
    redis = Redis.from_url(spec.url, max_connections=spec.workers + 8)
    waiting = [b"%d|%s" % (group, body) for _, group, body in spec.load]
    for first in range(0, len(waiting), 500):
        await redis.lpush(QUEUE, *waiting[first : first + 500])
    spec.begin()
    workers = [asyncio.create_task(_work(redis, spec, n)) for n in range(spec.workers)]
    await spec.finish()
    await asyncio.gather(*workers)  # not cancelled: redis-py may swallow that
    await redis.aclose()


async def _work(redis: Redis, spec: Spec, worker: int) -> None:
    while not spec.is_over:
        if not await redis.setnx(LOCK, worker):
            await asyncio.sleep(POLL)
            continue
        await redis.expire(LOCK, LOCKED)
        job = await _take(redis, worker)
        await redis.delete(LOCK)
        if job is None:
            await asyncio.sleep(POLL)
            continue
        group, _, body = job.partition(b"|")
        await spec.handle(number_in(body))
        await redis.delete(f"checkpoint:{worker}")
        await redis.delete(b"lock:" + group)
        await redis.incr("done")


async def _take(redis: Redis, worker: int) -> bytes | None:
    """The oldest job whose group is free, or ``None``: a walk over the list from its tail."""
    end = -1
    while True:
        page: list[Any] = await redis.lrange(QUEUE, end - PAGE + 1, end)
        if not page:
            return None
        for job in reversed(page):
            lock = b"lock:" + job.partition(b"|")[0]
            if await redis.setnx(lock, worker):
                await redis.expire(lock, LOCKED)
                await redis.set(f"checkpoint:{worker}", job)
                await redis.lrem(QUEUE, -1, job)
                return bytes(job)
        end -= PAGE


if __name__ == "__main__":
    main(run)
