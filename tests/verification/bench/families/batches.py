"""batches: 10,000 rows of 100 groups into PostgreSQL, by one statement a hundred and one by one.

The daemon, its workers and the example's handler are the same; what differs is the rule's `batch`.
What is measured is the time from the first row to the last; each row has to be there once.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from time import monotonic

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.databases import Postgres
from tests.store.bench import Bench as Namespace
from tests.verification.bench.bench import Bench
from tests.verification.bench.daemons import LOOK, REPOSITORY, START_WITHIN, RunFailed
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

ONE_BY_ONE = "one by one"
GROUPS, BATCH, WORKERS = 100, 100, 16
_EXAMPLE = REPOSITORY / "docs" / "examples" / "batches"


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure both."""
    what = f"rows of {GROUPS} groups into PostgreSQL, batch = {BATCH}"
    goal = Goal(f"≥ 10 times {ONE_BY_ONE}", 10.0)
    row = Row("batches", what, "rows/s", goal, beside=ONE_BY_ONE, is_checked=False)

    async def turn(batch: int) -> Turn:
        return Turn({row.key: await _measure(bench, batch)})

    sides = {OURS: partial(turn, BATCH), ONE_BY_ONE: partial(turn, 1)}
    await take_turns(bench, [row], sides)
    yield row


async def _measure(bench: Bench, batch: int) -> float:
    """Rows a second."""
    rows = bench.pick(10_000, 2_000)
    async with bench.redis() as (redis, folder):
        database = Postgres()
        try:
            async with database:
                engine = create_async_engine(database.url)
                try:
                    return await _drain(engine, database.url, redis.url, folder, batch, rows)
                finally:
                    await engine.dispose()
        finally:
            database.remove()


async def _drain(  # noqa: PLR0917  private, and called once
    engine: AsyncEngine, database: str, redis: str, folder: Path, batch: int, rows: int
) -> float:
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "CREATE TABLE imported (task TEXT PRIMARY KEY, owner TEXT NOT NULL, "
                "body TEXT NOT NULL, place BIGSERIAL)"
            )
        )
    namespace = Namespace(redis)
    for first in range(0, rows, 1000):
        await namespace.enqueue(*(_row(n) for n in range(first, min(first + 1000, rows))))
    process = _start(redis, namespace, folder, batch, database)
    try:
        await _until(engine, 1, process, folder)
        began, before = monotonic(), await _count(engine)
        await _until(engine, rows, process, folder)
        return (rows - before) / (monotonic() - began)
    finally:
        process.kill()
        process.wait()
        await namespace.close()


def _start(
    redis: str, namespace: Namespace, folder: Path, batch: int, database: str
) -> subprocess.Popen[bytes]:
    """Start the daemon."""
    config = folder / "groupflow.toml"
    config.write_text(
        f'[redis]\nurl = "{redis}"\nnamespace = "{namespace.keys.namespace}"\n'
        f'[workers]\ngrouped = {WORKERS}\nplain = 0\n[http]\nlisten = ""\n'
        f'[[groups]]\nname = "rule"\nkey = "{{owner}}"\nbatch = {batch}\n'
    )
    command = [sys.executable, "-m", "groupflow", "run", "--config", str(config)]
    command += ["--only", "workers", "--app", "rows:app"]
    environment = {**os.environ, "ROWS_DATABASE": database, "PYTHONPATH": str(REPOSITORY)}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=_EXAMPLE, env=environment, stdout=log, stderr=log)


def _row(number: int) -> Arrival:
    group = f"owner-{number % GROUPS}"
    envelope = Envelope("import.rows", group, "42", "rule", {}, b'{"row": %d}' % number)
    return Arrival(f"row-{number:06}", envelope)


async def _count(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM imported"))).scalar_one())


async def _until(
    engine: AsyncEngine, rows: int, process: subprocess.Popen[bytes], folder: Path
) -> None:
    end = monotonic() + START_WITHIN
    while await _count(engine) < rows:
        if monotonic() > end or process.poll() is not None:
            log = (folder / "log").read_text(errors="replace")
            raise RunFailed(f"the rows don't come: {log[-1000:]}")
        await asyncio.sleep(LOOK)
