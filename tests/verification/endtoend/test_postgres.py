"""Examples of the documents on PostgreSQL, whose daemons are killed: the batches, the outbox."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.databases import Postgres
from tests.deadlines import short_lease
from tests.docs.examples import EXAMPLES
from tests.endtoend.conftest import MakeRig, make_rig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig
from tests.servers.replicated import until

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


# The outbox of the documents, under kills: nothing lost, the order of each aggregate kept.


__all__ = ["make_rig"]

SENDS, AGGREGATES, KILLS = 300, 12, 2
OUTBOX = text(
    "CREATE TABLE outbox (id BIGSERIAL PRIMARY KEY, aggregate TEXT NOT NULL, "
    "body TEXT NOT NULL, sent BOOLEAN NOT NULL DEFAULT FALSE)"
)
INSERT = text("INSERT INTO outbox (aggregate, body) VALUES (:of, '{\"of\": \"' || :of || '\"}')")
NOTIFY, SENT = text("NOTIFY outbox"), text("SELECT count(*) FROM outbox WHERE sent")


@pytest.mark.timeout(300)
async def test_an_outbox_under_kills(
    make_rig: MakeRig, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(16)
    rig = make_rig(workers={"lease": short_lease()})
    far = make_rig()  # where the messages go: another queue, another namespace
    monkeypatch.setenv("OUTBOX_DATABASE", postgres.url)
    monkeypatch.setenv("OUTBOX_RABBITMQ", rig.rabbitmq.url)
    monkeypatch.setenv("OUTBOX_QUEUE", far.queue)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES / "scans"))
    engine = create_async_engine(postgres.url)
    written = 0

    async def run(*statements: Any) -> int:
        async with engine.begin() as connection:
            for each in statements:
                done = await connection.execute(*each if isinstance(each, tuple) else (each,))
        return int(done.scalar_one()) if done.returns_rows else 0

    async def are_sent() -> bool:
        return await run(SENT) >= written - SENDS // 6

    def start(name: str) -> Process:
        only = ("--only", "workers")
        process = rig.spawn(name, *only, app="outbox:app", tree=EXAMPLES / "scans")
        process.wait_for("lease.begun")
        return process

    await run(OUTBOX)
    far.start("intake", "--only", "intake")
    daemons = [start("d0"), start("d1")]
    for kill in range(KILLS + 1):
        for _ in range(SENDS // (KILLS + 1) // 20):  # some a transaction
            rows = [{"of": f"order-{n % AGGREGATES}"} for n in range(written, written + 20)]
            await run((INSERT, rows), NOTIFY)
            written += 20
        await until(are_sent, "not even half of it was sent")
        if kill < KILLS:
            victim = chance.randrange(2)
            rig.kill(daemons[victim])
            daemons[victim] = start(f"d{victim}")
    _check_outbox(far, written)
    await engine.dispose()


def _check_outbox(rig: Rig, written: int) -> None:
    """Each row came, and first came in the order of its aggregate.

    Intake drops what was published again, by its id, and keeps the order of the rest.
    """
    rig.until(lambda: rig.raw.llen(rig.keys("plain")) >= written, "all messages")
    entries: list[bytes] = rig.raw.lrange(rig.keys("plain"), 0, -1)
    order: dict[str, list[int]] = defaultdict(list)
    for entry in reversed(entries):
        id_ = entry[17:].decode()
        envelope: bytes = rig.raw.hget(rig.keys("tasks"), id_)
        aggregate = orjson.loads(envelope.partition(b"\n")[2])["of"]
        order[aggregate].append(int(id_.removeprefix("outbox:")))
    assert sorted(n for ids in order.values() for n in ids) == list(range(1, written + 1))
    assert len(order) == AGGREGATES
    for aggregate, ids in order.items():
        assert ids == sorted(ids), aggregate
