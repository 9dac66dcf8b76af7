"""batches, scans: rows of a PostgreSQL, by daemons and beside them.

- batches: 10,000 rows of 100 groups into it, by one statement a hundred and one by one. The daemon,
  its workers and the example's handler are the same; what differs is the rule's `batch`. The time
  is that from the first row to the last; each row has to be there once.
- scans: 100,000 orders in it, 2 ms each, by 1, 2 and 4 machines, beside the source's loop, one a
  machine, as it was published. Both speak through SQLAlchemy and asyncpg, and mark a row in a
  transaction of its own. What counts are the rows of some seconds while all are at work; no row may
  be done twice.
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
from tests.store.bench import Bench as Namespace
from tests.verification.bench.bench import Bench, Turn
from tests.verification.bench.daemons import LOOK, REPOSITORY, START_WITHIN, RunFailed
from tests.verification.bench.peers.running import private_postgres
from tests.verification.bench.rows import OURS, Goal, Row

WORKERS = 16  # of a daemon
ONE_BY_ONE, SOURCE = "one by one", "source's loop"
GROUPS, BATCH = 100, 100
EXAMPLE = REPOSITORY / "docs" / "examples" / "batches"
IMPORTED = (
    "CREATE TABLE imported (task TEXT PRIMARY KEY, owner TEXT NOT NULL, body TEXT NOT NULL, "
    "place BIGSERIAL)"
)
MACHINES = (1, 2, 4)


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
        """The number of rows that a table, or a part of it, has."""
        async with self.engine.connect() as connection:
            return int(
                (await connection.execute(text(f"SELECT count(*) FROM {query}"))).scalar_one()
            )

    async def until(self, query: str, wanted: int) -> None:
        """Wait until there are as many while all machines live."""
        end = monotonic() + START_WITHIN
        while await self.count(query) < wanted:
            if monotonic() > end or any(each.poll() is not None for each in self.started):
                log = (self.folder / "log-0").read_text(errors="replace")
                raise RunFailed(f"{query} doesn't find {wanted}: {log[-1000:]}")
            await asyncio.sleep(LOOK)

    def start(self, *words: str, cwd: Path = REPOSITORY, **environment: str) -> None:
        """Start a machine."""
        with (self.folder / f"log-{len(self.started)}").open("wb") as log:
            command, whole = [sys.executable, "-m", *words], {**os.environ, **environment}
            self.started.append(
                subprocess.Popen(command, cwd=cwd, env=whole, stdout=log, stderr=log)
            )

    def start_daemon(
        self, app: str, namespace: str = "groupflow", more: str = "", **place: str | Path
    ) -> None:
        """Start a daemon whose workers have grouped tasks alone."""
        name = f"d{len(self.started)}"
        file = self.folder / f"{name}.toml"
        file.write_text(
            f'[redis]\nurl = "{self.redis}"\nnamespace = "{namespace}"\n'
            f'[workers]\ngrouped = {WORKERS}\nplain = 0\n[http]\nlisten = ""\n{more}'
        )
        words = ("run", "--config", str(file), "--name", name, "--only", "workers", "--app", app)
        self.start("groupflow", *words, **place)  # type: ignore[arg-type]


@asynccontextmanager
async def _ground(bench: Bench) -> AsyncIterator[Ground]:
    async with bench.redis() as (redis, folder), private_postgres() as database:
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
    rows = bench.pick(10_000, 2_000)

    async def turn(batch: int) -> Turn:
        async with _ground(bench) as ground:
            await ground.run(IMPORTED)
            namespace = Namespace(ground.redis)
            try:
                for first in range(0, rows, 1000):
                    numbers = range(first, min(first + 1000, rows))
                    await namespace.enqueue(*map(_imported, numbers))
                rule = f'[[groups]]\nname = "rule"\nkey = "{{owner}}"\nbatch = {batch}\n'
                facts = {"ROWS_DATABASE": ground.url, "PYTHONPATH": str(REPOSITORY)}
                name = namespace.keys.namespace
                ground.start_daemon("rows:app", name, rule, cwd=EXAMPLE, **facts)
                await ground.until("imported", 1)
                began, before = monotonic(), await ground.count("imported")
                await ground.until("imported", rows)
                return Turn({row.key: (rows - before) / (monotonic() - began)})
            finally:
                await namespace.close()

    await bench.take_turns([row], {OURS: partial(turn, BATCH), ONE_BY_ONE: partial(turn, 1)})
    yield row


def _imported(number: int) -> Arrival:
    group = f"owner-{number % GROUPS}"
    envelope = Envelope("import.rows", group, "42", "rule", {}, b'{"row": %d}' % number)
    return Arrival(f"row-{number:06}", envelope)


async def scans(bench: Bench) -> AsyncIterator[Row]:
    """Measure each number of machines."""
    for machines in [1] if bench.quick else MACHINES:
        what = f"rows of a table, 2 ms each, {machines} machine{'s' * (machines > 1)}"
        goal = Goal(f"≥ 3 times {SOURCE}", 3.0)
        row = Row(f"scans.{machines}", what, "rows/s", goal, SOURCE, is_checked=False)
        if bench.wants(row.key):
            sides = {who: partial(_scanned, bench, row, machines, who) for who in (OURS, SOURCE)}
            await bench.take_turns([row], sides)
            yield row


async def _scanned(bench: Bench, row: Row, machines: int, who: str) -> Turn:
    """Rows a second of some machines."""
    async with _ground(bench) as ground:
        await ground.run(
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
        for _ in range(machines):
            if who == OURS:
                app = "tests.verification.bench.scan_app:app"
                ground.start_daemon(app, SCAN_URL=ground.url, SCAN_SHARDS=shards)
            else:
                loop = "tests.verification.bench.peers.scan_loops"
                ground.start(loop, ground.url, ground.redis, shards)
        if who != OURS:
            await ground.until("at_work", machines)
        done = "orders WHERE status = 1"
        await ground.until(done, 200 * machines)  # all work, as far as that can be seen from here
        before, began = await ground.count(done), monotonic()
        await asyncio.sleep(bench.pick(10, 4))
        rate = (await ground.count(done) - before) / (monotonic() - began)
        if twice := await ground.count("orders WHERE times > 1"):
            raise RunFailed(f"{twice} rows were done twice")
        return Turn({row.key: rate})
