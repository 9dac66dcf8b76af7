"""`make bench`: how claims cost as the backlog grows, and what a waiting task weighs.

`make bench QUICK=1` stops at 100,000 waiting tasks.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from groupflow.servers.redis import RedisServer
from tests.bench.backlog import Row, measure

WORKERS = 16
EXCHANGES = 2_000


async def main() -> None:
    """Measure all rows and print them."""
    large = 100_000 if os.environ.get("QUICK") else 1_000_000
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="groupflow-bench-") as folder:
        async with RedisServer(Path(folder)) as redis:
            # The first fill of a fresh server pays for its memory; it is not counted.
            await measure(
                redis.url, "", waiting=20_000, groups=1000, hot=0, workers=16, exchanges=9
            )
            for waiting in (1_000, 20_000, large):
                for hot in (0.0, 0.5):
                    shape = "half in one hot group" if hot else "even"
                    rows.append(
                        await measure(
                            redis.url,
                            f"{waiting:,} waiting, {shape}",
                            waiting=waiting,
                            groups=1_000,
                            hot=hot,
                            workers=WORKERS,
                            # While only the hot group is left, one claim a trip is all there is;
                            # the rows compare what is claimed before that.
                            exchanges=min(EXCHANGES, round(waiting * (1 - hot)) // WORKERS),
                        )
                    )
            rows.append(
                await measure(
                    redis.url,
                    f"{large:,} waiting, a group each",
                    waiting=large,
                    groups=large,
                    hot=0,
                    workers=WORKERS,
                    exchanges=EXCHANGES,
                )
            )
    _print(rows)


def _print(rows: list[Row]) -> None:
    table = Table(
        f"{WORKERS} workers, 200-byte bodies",
        "enqueued/s",
        "claimed and completed/s",
        "exchange p50 ms",
        "p99 ms",
        "bytes above the body",
    )
    for row in rows:
        table.add_row(
            row.name,
            f"{row.enqueued:,.0f}",
            f"{row.claimed:,.0f}",
            f"{row.p50:.2f}",
            f"{row.p99:.2f}",
            f"{row.overhead:,.0f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    asyncio.run(main())
