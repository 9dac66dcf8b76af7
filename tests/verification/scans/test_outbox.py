"""The outbox of the documents, under kills: nothing lost, the order of each aggregate kept."""

from __future__ import annotations

import random
from collections import defaultdict

import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.databases import Postgres
from tests.deadlines import short_lease
from tests.docs.examples import EXAMPLES
from tests.endtoend.conftest import MakeRig, make_rig
from tests.endtoend.process import Process
from tests.endtoend.rig import Rig
from tests.servers.replicated import until

__all__ = ["make_rig"]

ROWS, AGGREGATES, KILLS = 300, 12, 2


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
    try:
        await _make_table(engine)
        far.start("intake", "--only", "intake")
        daemons = [_start(rig, f"d{n}") for n in range(2)]
        written = 0
        for kill in range(KILLS + 1):
            share = ROWS // (KILLS + 1)
            await _write(engine, share)
            written += share
            await _until_sent(engine, written - share // 2)
            if kill < KILLS:
                victim = chance.randrange(2)
                rig.kill(daemons[victim])
                daemons[victim] = _start(rig, f"d{victim}")
        await _until_sent(engine, written)
        _check(far, written)
    finally:
        await engine.dispose()


def _start(rig: Rig, name: str) -> Process:
    process = rig.spawn(name, "--only", "workers", app="outbox:app", tree=EXAMPLES / "scans")
    process.wait_for("lease.begun")
    return process


async def _make_table(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "CREATE TABLE outbox (id BIGSERIAL PRIMARY KEY, aggregate TEXT NOT NULL, "
                "body TEXT NOT NULL, sent BOOLEAN NOT NULL DEFAULT FALSE)"
            )
        )


async def _write(engine: AsyncEngine, rows: int) -> None:
    """Insert rows of all aggregates in turn, some a transaction, and notify."""
    for first in range(0, rows, 20):
        async with engine.begin() as connection:
            for n in range(first, min(first + 20, rows)):
                aggregate = f"order-{n % AGGREGATES}"
                await connection.execute(
                    text("INSERT INTO outbox (aggregate, body) VALUES (:aggregate, :body)"),
                    {"aggregate": aggregate, "body": orjson.dumps({"of": aggregate}).decode()},
                )
            await connection.execute(text("NOTIFY outbox"))


async def _until_sent(engine: AsyncEngine, wanted: int) -> None:
    async def are_sent() -> bool:
        async with engine.connect() as connection:
            found = await connection.execute(text("SELECT count(*) FROM outbox WHERE sent"))
            return int(found.scalar_one()) >= wanted

    await until(are_sent, f"not even {wanted} rows were sent")


def _check(rig: Rig, written: int) -> None:
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
