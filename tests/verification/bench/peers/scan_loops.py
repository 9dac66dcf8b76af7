"""The source's loop that scans a table of orders, as one machine runs it.

`python -m tests.verification.bench.peers.scan_loops URL REDIS SHARDS` works until it is killed. It
puts a row into the table `at_work` once it works.

That is `token = INCR mod N`, a lock a token with an expiry, a page of the token's open rows,
each done and marked, the token freed; if it is taken, the next one; if all are, 8 s of sleep.
"""

from __future__ import annotations

import asyncio
import sys

from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

WORK = 0.002  # seconds a row
EXPIRY = 60  # seconds of a token's lock
SLEEP = 8.0  # seconds, where all tokens are taken

_PAGE_OF = text(
    "SELECT id FROM orders WHERE id % :count = :token AND status = 0 ORDER BY id LIMIT 100"
)
_MARK = text("UPDATE orders SET status = 1, times = times + 1 WHERE id = :id")


async def run(url: str, redis_url: str, shards: int) -> None:
    """As it was published, but that its lock is one step: SET NX EX."""
    engine, redis = create_async_engine(url), Redis.from_url(redis_url)
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO at_work VALUES (1)"))
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


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
