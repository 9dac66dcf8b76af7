"""The outbox of the documents, under kills: nothing lost, the order of each aggregate kept."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import Postgres
from tests.deadlines import short_lease
from tests.docs.examples import EXAMPLES
from tests.endtoend.conftest import MakeRig, make_rig
from tests.endtoend.process import Process
from tests.endtoend.rig import Rig
from tests.servers.replicated import until

__all__ = ["make_rig"]

ROWS, AGGREGATES, KILLS = 300, 12, 2
TABLE = text(
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
        return await run(SENT) >= written - ROWS // 6

    def start(name: str) -> Process:
        only = ("--only", "workers")
        process = rig.spawn(name, *only, app="outbox:app", tree=EXAMPLES / "scans")
        process.wait_for("lease.begun")
        return process

    await run(TABLE)
    far.start("intake", "--only", "intake")
    daemons = [start("d0"), start("d1")]
    for kill in range(KILLS + 1):
        for _ in range(ROWS // (KILLS + 1) // 20):  # some a transaction
            rows = [{"of": f"order-{n % AGGREGATES}"} for n in range(written, written + 20)]
            await run((INSERT, rows), NOTIFY)
            written += 20
        await until(are_sent, "not even half of it was sent")
        if kill < KILLS:
            victim = chance.randrange(2)
            rig.kill(daemons[victim])
            daemons[victim] = start(f"d{victim}")
    _check(far, written)
    await engine.dispose()


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
