"""Loops that scan a table of orders, as one machine runs them: the source's, and SKIP LOCKED's.

`python -m tests.verification.bench.peers.scan_loops KIND URL REDIS SHARDS LOOPS`: works until it is
killed, and puts a row into the table `at_work` once it works.

The source's: `token = INCR mod N`, a lock a token with an expiry, a page of the token's open rows,
each done and marked, the token freed; if it is taken, the next one; if all are, 8 s of sleep.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

PAGE = 100
WORK = 0.002  # seconds a row
EXPIRY = 60  # seconds of a token's lock
SLEEP = 8.0  # seconds, where all tokens are taken

_PAGE_OF = text(
    "SELECT id FROM orders WHERE id % :count = :token AND status = 0 ORDER BY id LIMIT 100"
)
_MARK = text("UPDATE orders SET status = 1, times = times + 1 WHERE id = :id")
_LOCKED = text("SELECT id FROM orders WHERE status = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")


async def source_loop(engine: AsyncEngine, redis: Any, shards: int) -> None:
    """As it was published, but that its lock is one step: SET NX EX."""
    while True:
        for _ in range(shards):
            token = await redis.incr("task") % shards
            if await redis.set(f"token:{token}", 1, nx=True, ex=EXPIRY):
                break
        else:
            await asyncio.sleep(SLEEP)
            continue
        async with engine.connect() as connection:
            rows = (await connection.execute(_PAGE_OF, {"count": shards, "token": token})).all()
        for row in rows:
            await asyncio.sleep(WORK)
            async with engine.begin() as connection:
                await connection.execute(_MARK, {"id": row.id})
        await redis.delete(f"token:{token}")


async def skip_locked_loop(engine: AsyncEngine, _redis: Any, _shards: int) -> None:
    """A row a transaction, which holds it while it is worked on."""
    while True:
        async with engine.begin() as connection:
            row = (await connection.execute(_LOCKED)).first()
            if row is not None:
                await asyncio.sleep(WORK)
                await connection.execute(_MARK, {"id": row.id})
        if row is None:
            await asyncio.sleep(1.0)


async def run(kind: str, url: str, redis_url: str, shards: int, loops: int) -> None:
    """Run some loops side by side for ever."""
    engine = create_async_engine(url, pool_size=loops)
    redis = Redis.from_url(redis_url)
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO at_work VALUES (1)"))
    loop = {"source": source_loop, "locked": skip_locked_loop}[kind]
    await asyncio.gather(*(loop(engine, redis, shards) for _ in range(loops)))


if __name__ == "__main__":
    _, kind, url, redis_url, shards, loops = sys.argv
    asyncio.run(run(kind, url, redis_url, int(shards), int(loops)))
