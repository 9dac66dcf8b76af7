"""scans: 100,000 orders in PostgreSQL, 2 ms each, by 1, 2 and 4 machines.

Beside the source's own loop (one a machine, as it was published), the same loop as many times a
machine as a daemon has workers, and rows taken by `FOR UPDATE SKIP LOCKED`, as many. All speak
through SQLAlchemy and asyncpg, and each marks a row in a transaction of its own. What is measured
are the rows of some seconds while all are at work; no row may be done twice.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.databases import Postgres
from tests.verification.bench.bench import Bench
from tests.verification.bench.daemons import LOOK, REPOSITORY, START_WITHIN, RunFailed
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

MACHINES = (1, 2, 4)
WORKERS = 16  # of a daemon; loops of a machine, but for the source's own
SOURCE, SOURCE_WIDE, LOCKED = "source's loop", "source's, 16 a machine", "SKIP LOCKED, 16 a machine"
_LOOPS = {SOURCE: ("source", 1), SOURCE_WIDE: ("source", WORKERS), LOCKED: ("locked", WORKERS)}


class _Counting(Postgres):
    """A PostgreSQL that counts statements."""

    def command(self) -> list[str]:
        """The program and its arguments."""
        return [
            *super().command(),
            *("-c", "shared_preload_libraries=pg_stat_statements"),
            *("-c", "pg_stat_statements.track_utility=off"),
        ]


@dataclass(frozen=True, slots=True)
class _Ground:
    """What all machines of a turn stand on."""

    engine: AsyncEngine
    url: str
    redis: str
    folder: Path
    shards: int


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure each number of machines."""
    for machines in [1] if bench.quick else MACHINES:
        if bench.wants(f"scans.{machines}"):
            for row in await _rows(bench, machines):
                yield row


async def _rows(bench: Bench, machines: int) -> list[Row]:
    what = f"rows of a table, 2 ms each, {machines} machine{'s' * (machines > 1)}"
    goal = Goal(f"≥ 3 times {SOURCE}", 3.0)
    key = f"scans.{machines}"
    rate = Row(f"{key}.rate", what, "rows/s", goal, beside=SOURCE, is_checked=False)
    asked = Row(f"{key}.queries", f"queries a row, {what}", "queries", beside=SOURCE)
    asked.is_checked = False

    async def turn(who: str) -> Turn:
        rows, queries = await _measure(bench, who, machines)
        return Turn({rate.key: rows, asked.key: queries})

    sides = {who: partial(turn, who) for who in (OURS, SOURCE, SOURCE_WIDE, LOCKED)}
    await take_turns(bench, [rate, asked], sides)
    return [rate, asked]


async def _measure(bench: Bench, who: str, machines: int) -> tuple[float, float]:
    """Rows a second of some machines, and their queries a row."""
    async with bench.redis() as (redis, folder), AsyncExitStack() as stack:
        database = _Counting()
        stack.callback(database.remove)
        await stack.enter_async_context(database)
        engine = create_async_engine(database.url)
        stack.push_async_callback(engine.dispose)
        # The source has as many tokens as machines; more are of no use to its loop.
        shards = WORKERS * machines
        ground = _Ground(engine, database.url, redis.url, folder, shards)
        await _fill(engine, bench.pick(100_000, 20_000))
        started = [_start(ground, who, n) for n in range(machines)]
        try:
            await _until(lambda: all(ready.exists() for _, ready in started), started)
            await _until_moving(engine, started)
            return await _watch(engine, bench.pick(10, 4))
        finally:
            for process, _ in started:
                process.kill()
                process.wait()


def _start(ground: _Ground, who: str, number: int) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a machine. Returns its process, and the file that says that it works."""
    ready = ground.folder / f"ready-{number}"
    environment = {**os.environ, "SCAN_URL": ground.url, "SCAN_SHARDS": str(ground.shards)}
    log = (ground.folder / f"log-{number}").open("wb")
    if who == OURS:
        config = ground.folder / f"groupflow-{number}.toml"
        config.write_text(
            f'[redis]\nurl = "{ground.redis}"\n[workers]\ngrouped = {WORKERS}\nplain = 0\n'
            '[http]\nlisten = ""\n'
        )
        words = ["groupflow", "run", "--config", str(config), "--name", f"d{number}"]
        command = [*words, "--only", "workers", "--app", "tests.verification.bench.scan_app:app"]
        ready.touch()
    else:
        kind, loops = _LOOPS[who]
        facts = [kind, ground.url, ground.redis, str(ground.shards), str(loops), str(ready)]
        command = ["tests.verification.bench.peers.scan_loops", *facts]
    process = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=REPOSITORY, env=environment, stdout=log, stderr=log
    )
    return process, ready


async def _fill(engine: AsyncEngine, rows: int) -> None:
    async with engine.begin() as connection:
        for statement in (
            "CREATE EXTENSION pg_stat_statements",
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, status INTEGER, times INTEGER)",
            f"INSERT INTO orders SELECT n, 0, 0 FROM generate_series(1, {rows}) n",
            "CREATE INDEX ON orders (id) WHERE status = 0",
        ):
            await connection.execute(text(statement))
    async with engine.connect() as connection:
        await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(
            text("VACUUM ANALYZE orders")
        )


async def _done(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT count(*) FROM orders WHERE status = 1"))
        return int(found.scalar_one())


async def _until(
    condition: Callable[[], bool], started: Sequence[tuple[subprocess.Popen[bytes], Path]]
) -> None:
    end = monotonic() + START_WITHIN
    while not condition():
        if monotonic() > end or any(process.poll() is not None for process, _ in started):
            log = started[0][1].with_name("log-0").read_text(errors="replace")
            raise RunFailed(f"a machine doesn't work: {log[-1000:]}")
        await asyncio.sleep(LOOK)


async def _until_moving(
    engine: AsyncEngine, started: Sequence[tuple[subprocess.Popen[bytes], Path]]
) -> None:
    """Wait until rows are done, by all as far as that can be seen from here."""
    end = monotonic() + START_WITHIN
    while await _done(engine) < 200 * len(started):
        await _until(lambda: True, started)
        if monotonic() > end:
            raise RunFailed("no rows are done")
        await asyncio.sleep(0.1)


async def _watch(engine: AsyncEngine, seconds: float) -> tuple[float, float]:
    async with engine.begin() as connection:
        await connection.execute(text("SELECT pg_stat_statements_reset()"))
    before, began = await _done(engine), monotonic()
    await asyncio.sleep(seconds)
    after, took = await _done(engine), monotonic() - began
    async with engine.connect() as connection:
        calls = await connection.execute(
            text(
                "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%orders%'"
                " AND query NOT LIKE '%count(*)%'"
            )
        )
        twice = await connection.execute(text("SELECT count(*) FROM orders WHERE times > 1"))
        rows = max(1, after - before)
        if found := twice.scalar_one():
            raise RunFailed(f"{found} rows were done twice")
        return rows / took, float(calls.scalar_one()) / rows
