"""batches, scans: rows of a PostgreSQL, by daemons and beside them.

- batches: 10,000 rows of 100 groups into it, by one statement a hundred and one by one. The daemon,
  its workers and the example's handler are the same; what differs is the rule's `batch`. The time
  is that from the first row to the last; each row has to be there once.
- scans: 100,000 orders in it, 2 ms each, by 1, 2 and 4 machines. Beside the source's own loop (one
  a machine, as it was published), the same loop as many times a machine as a daemon has workers,
  and rows taken by `FOR UPDATE SKIP LOCKED`, as many. All speak through SQLAlchemy and asyncpg, and
  each marks a row in a transaction of its own. What counts are the rows of some seconds while all
  are at work; no row may be done twice.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
from tests.verification.bench.peers.running import private_postgres
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

WORKERS = 16  # of a daemon; loops of a machine, but for the source's own
ONE_BY_ONE = "one by one"
GROUPS, BATCH = 100, 100
EXAMPLE = REPOSITORY / "docs" / "examples" / "batches"
IMPORTED = (
    "CREATE TABLE imported (task TEXT PRIMARY KEY, owner TEXT NOT NULL, body TEXT NOT NULL, "
    "place BIGSERIAL)"
)
MACHINES = (1, 2, 4)
SOURCE, SOURCE_WIDE, LOCKED = "source's loop", "source's, 16 a machine", "SKIP LOCKED, 16 a machine"
LOOPS = {SOURCE: ("source", 1), SOURCE_WIDE: ("source", WORKERS), LOCKED: ("locked", WORKERS)}
QUERIES = (
    "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%orders%'"
    " AND query NOT LIKE '%count(*)%'"
)


class Counting(Postgres):
    """A PostgreSQL that counts statements."""

    def command(self) -> list[str]:
        """The program and its arguments."""
        counts = ("-c", "shared_preload_libraries=pg_stat_statements")
        return [*super().command(), *counts, "-c", "pg_stat_statements.track_utility=off"]


@dataclass
class Ground:
    """What all machines of a turn stand on, and they."""

    engine: AsyncEngine
    url: str
    redis: str
    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def run(self, *statements: str) -> None:
        """Run statements."""
        async with self.engine.begin() as connection:
            for statement in statements:
                await connection.execute(text(statement))

    async def count(self, query: str) -> int:
        """The number that a query finds."""
        async with self.engine.connect() as connection:
            return int((await connection.execute(text(query))).scalar_one())

    async def until(self, query: str, wanted: int) -> None:
        """Wait until a query finds as many while all machines live."""
        end = monotonic() + START_WITHIN
        while await self.count(query) < wanted:
            if monotonic() > end or any(each.poll() is not None for each in self.started):
                log = (self.folder / "log-0").read_text(errors="replace")
                raise RunFailed(f"{query} doesn't find {wanted}: {log[-1000:]}")
            await asyncio.sleep(LOOK)

    def config(self, namespace: str = "groupflow", more: str = "") -> str:
        """Where a daemon's configuration is."""
        file = self.folder / f"groupflow-{len(self.started)}.toml"
        file.write_text(
            f'[redis]\nurl = "{self.redis}"\nnamespace = "{namespace}"\n'
            f'[workers]\ngrouped = {WORKERS}\nplain = 0\n[http]\nlisten = ""\n{more}'
        )
        return str(file)

    def start(self, *words: str, cwd: Path = REPOSITORY, **environment: str) -> None:
        """Start a machine."""
        with (self.folder / f"log-{len(self.started)}").open("wb") as log:
            command, whole = [sys.executable, "-m", *words], {**os.environ, **environment}
            self.started.append(
                subprocess.Popen(command, cwd=cwd, env=whole, stdout=log, stderr=log)
            )


@asynccontextmanager
async def _ground(bench: Bench, kind: type[Postgres] = Postgres) -> AsyncIterator[Ground]:
    async with bench.redis() as (redis, folder), private_postgres(kind) as database:
        engine = create_async_engine(database.url)
        ground = Ground(engine, database.url, redis.url, folder)
        try:
            yield ground
        finally:
            for process in ground.started:
                process.kill()
                process.wait()
            await engine.dispose()


async def batches(bench: Bench) -> AsyncIterator[Row]:
    """Measure both."""
    what = f"rows of {GROUPS} groups into PostgreSQL, batch = {BATCH}"
    goal = Goal(f"≥ 10 times {ONE_BY_ONE}", 10.0)
    row = Row("batches", what, "rows/s", goal, beside=ONE_BY_ONE, is_checked=False)
    rows, found = bench.pick(10_000, 2_000), "SELECT count(*) FROM imported"

    async def turn(batch: int) -> Turn:
        async with _ground(bench) as ground:
            await ground.run(IMPORTED)
            namespace = Namespace(ground.redis)
            try:
                for first in range(0, rows, 1000):
                    numbers = range(first, min(first + 1000, rows))
                    await namespace.enqueue(*map(_imported, numbers))
                rule = f'[[groups]]\nname = "rule"\nkey = "{{owner}}"\nbatch = {batch}\n'
                config = ground.config(namespace.keys.namespace, rule)
                words = ("groupflow", "run", "--config", config, "--only", "workers")
                facts = {"ROWS_DATABASE": ground.url, "PYTHONPATH": str(REPOSITORY)}
                ground.start(*words, "--app", "rows:app", cwd=EXAMPLE, **facts)
                await ground.until(found, 1)
                began, before = monotonic(), await ground.count(found)
                await ground.until(found, rows)
                return Turn({row.key: (rows - before) / (monotonic() - began)})
            finally:
                await namespace.close()

    await take_turns(bench, [row], {OURS: partial(turn, BATCH), ONE_BY_ONE: partial(turn, 1)})
    yield row


def _imported(number: int) -> Arrival:
    group = f"owner-{number % GROUPS}"
    envelope = Envelope("import.rows", group, "42", "rule", {}, b'{"row": %d}' % number)
    return Arrival(f"row-{number:06}", envelope)


async def scans(bench: Bench) -> AsyncIterator[Row]:
    """Measure each number of machines."""
    for machines in [1] if bench.quick else MACHINES:
        key = f"scans.{machines}"
        if not bench.wants(key):
            continue
        what = f"rows of a table, 2 ms each, {machines} machine{'s' * (machines > 1)}"
        goal = Goal(f"≥ 3 times {SOURCE}", 3.0)
        rate = Row(f"{key}.rate", what, "rows/s", goal, SOURCE, is_checked=False)
        asked = Row(f"{key}.queries", f"queries a row, {what}", "queries", None, SOURCE)
        asked.is_checked = False

        async def turn(
            who: str, machines: int = machines, rows: tuple[Row, Row] = (rate, asked)
        ) -> Turn:
            figures = await _scanned(bench, who, machines)
            return Turn({row.key: figure for row, figure in zip(rows, figures, strict=True)})

        sides = {who: partial(turn, who) for who in (OURS, *LOOPS)}
        await take_turns(bench, [rate, asked], sides)
        yield rate
        yield asked


async def _scanned(bench: Bench, who: str, machines: int) -> tuple[float, float]:
    """Rows a second of some machines, and their queries a row."""
    async with _ground(bench, Counting) as ground:
        await ground.run(
            "CREATE EXTENSION pg_stat_statements",
            "CREATE TABLE at_work (machine INTEGER)",
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, status INTEGER, times INTEGER)",
            "INSERT INTO orders SELECT n, 0, 0 "
            f"FROM generate_series(1, {bench.pick(100_000, 20_000)}) n",
            "CREATE INDEX ON orders (id) WHERE status = 0",
        )
        async with ground.engine.connect() as connection:
            alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await alone.execute(text("VACUUM ANALYZE orders"))
        # The source has as many tokens as machines; more are of no use to its loop.
        shards = str(WORKERS * machines)
        for number in range(machines):
            if who == OURS:
                words = ["groupflow", "run", "--config", ground.config(), "--name", f"d{number}"]
                words += ["--only", "workers", "--app", "tests.verification.bench.scan_app:app"]
                ground.start(*words, SCAN_URL=ground.url, SCAN_SHARDS=shards)
            else:
                kind, loops = LOOPS[who]
                loop = "tests.verification.bench.peers.scan_loops"
                ground.start(loop, kind, ground.url, ground.redis, shards, str(loops))
        if who != OURS:
            await ground.until("SELECT count(*) FROM at_work", machines)
        done = "SELECT count(*) FROM orders WHERE status = 1"
        await ground.until(done, 200 * machines)  # all work, as far as that can be seen from here
        await ground.run("SELECT pg_stat_statements_reset()")
        before, began = await ground.count(done), monotonic()
        await asyncio.sleep(bench.pick(10, 4))
        after, took = await ground.count(done), monotonic() - began
        queries = await ground.count(QUERIES)
        if twice := await ground.count("SELECT count(*) FROM orders WHERE times > 1"):
            raise RunFailed(f"{twice} rows were done twice")
        rows = max(1, after - before)
        return rows / took, queries / rows
