"""The batches of the documents: rows into PostgreSQL, and a daemon killed meanwhile."""

from __future__ import annotations

from collections import defaultdict

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.databases import Postgres
from tests.deadlines import short_lease
from tests.docs.examples import EXAMPLES
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job

ROWS, GROUPS, BATCH = 3000, 30, 100
TABLE = (
    "CREATE TABLE imported (task TEXT PRIMARY KEY, owner TEXT NOT NULL, body TEXT NOT NULL, "
    "place BIGSERIAL)"
)


async def test_rows_go_in_by_the_hundred(
    make_rig: MakeRig, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, in the order of its group, in few transactions; a kill repeats some."""
    rig = make_rig(workers={"lease": short_lease(), "grouped": 8}, rule={"batch": BATCH})
    monkeypatch.setenv("ROWS_DATABASE", postgres.url)
    engine = create_async_engine(postgres.url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text(TABLE))
        intake = rig.start("intake", "--only", "intake")
        rig.publish(
            Job(f"row-{n:05}", f"owner-{n % GROUPS}", type="import.rows", n=n) for n in range(ROWS)
        )
        rig.until(lambda: rig.count("queued_grouped") == ROWS, "all rows in Redis")
        first = rig.spawn("d1", "--only", "workers", app="rows:app", tree=EXAMPLES / "batches")
        rig.until(lambda: rig.count("done") > 0, "the first batch")
        rig.kill(first)
        rig.spawn("d1", "--only", "workers", app="rows:app", tree=EXAMPLES / "batches")
        rig.until(lambda: rig.count("done") == ROWS, "all of them")
        await _check(engine)
        assert intake.is_running
    finally:
        await engine.dispose()


async def _check(engine: AsyncEngine) -> None:
    by_owner: dict[str, list[str]] = defaultdict(list)
    transactions = set()
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("SELECT owner, task, xmin::text FROM imported ORDER BY place")
        )
        for owner, task, transaction in rows:
            by_owner[owner].append(task)
            transactions.add(transaction)
    assert len(by_owner) == GROUPS
    assert sum(map(len, by_owner.values())) == ROWS
    for owner, tasks in by_owner.items():
        assert tasks == sorted(tasks), owner
    assert len(transactions) <= 2 * ROWS // BATCH + 16  # those that waited alone, and the repeated
