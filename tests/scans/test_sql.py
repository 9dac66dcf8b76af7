"""The ready-made scan of a table, on real databases: rows, marks, transactions, keys, cursors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from structlog.testing import capture_logs

from groupflow import SqlScan, SqlShard
from groupflow.scans import sql
from groupflow.scans.scan import Shard
from tests.deadlines import deadline
from tests.scans.machine import GROUP, Machine
from tests.servers.proxy import Proxy
from tests.servers.replicated import until
from tests.store.bench import Bench
from tests.store.task_state import redrive

Ship = Callable[[Any, SqlShard], Awaitable[None]]


@dataclass
class Orders:
    """A table of orders of a test's own, and what was shipped."""

    url: str
    engine: AsyncEngine
    name: str

    async def run(self, statement: str, **bound: Any) -> Any:
        """Run a statement about ``{t}``, the table."""
        async with self.engine.begin() as connection:
            found = await connection.execute(text(statement.replace("{t}", self.name)), bound)
            return found.all() if found.returns_rows else None

    async def fill(self, *ids: object) -> None:
        """Open orders."""
        async with self.engine.begin() as connection:
            await connection.execute(
                text(f"INSERT INTO {self.name} (id, status) VALUES (:id, 0)"),
                [{"id": id_} for id_ in ids],
            )

    async def shipped(self) -> list[Any]:
        """The keys that were shipped, in order."""
        found = await self.run("SELECT order_id FROM {t}_shipped ORDER BY n")
        return [row.order_id for row in found]

    async def status_of(self) -> dict[Any, int]:
        """What the table says of each."""
        return {row.id: row.status for row in await self.run("SELECT id, status FROM {t}")}

    def scan(self, ship: Ship | None = None, **facts: Any) -> SqlScan:
        """A scan that ships each order once, in the transaction of its mark."""
        usual = {"where": "status = 0", "done": "status = 1", "interval": -1e-6, "page": 10}
        scan = SqlScan("orders", url=self.url, table=self.name, **{**usual, **facts})
        scan.row()(ship or self.ship)
        return scan

    async def ship(self, order: Any, shard: SqlShard) -> None:
        """Note it, through the shard's connection where it has one."""
        statement = f"INSERT INTO {self.name}_shipped (order_id) VALUES (:id)"
        if shard.connection is None:
            await self.run(statement, id=order.id)
        else:
            await shard.connection.execute(text(statement), {"id": order.id})


@asynccontextmanager
async def worked(bench: Bench, scan: SqlScan) -> AsyncIterator[Machine]:
    """A daemon that runs the scan, once it has worked all off."""
    machine = await Machine.start(bench, scan)
    async with machine.shards.running():
        await machine.work_off()
        yield machine


async def _orders(url: str, kind: str, key_type: str = "INTEGER") -> AsyncIterator[Orders]:
    engine = create_async_engine(url)
    orders = Orders(url, engine, f"orders_{uuid4().hex[:12]}")
    await orders.run(f"CREATE TABLE {{t}} (id {key_type} PRIMARY KEY, status INTEGER NOT NULL)")
    await orders.run(f"CREATE TABLE {{t}}_shipped (n {SERIAL[kind]}, order_id {key_type})")
    try:
        yield orders
    finally:
        await engine.dispose()


SERIAL = {
    "postgres": "SERIAL PRIMARY KEY",
    "mariadb": "INTEGER PRIMARY KEY AUTO_INCREMENT",
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
}


@pytest.fixture(params=SERIAL)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Its URL, and which database."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/orders.db", "sqlite"
    return request.getfixturevalue(request.param).url, request.param


@pytest.fixture
async def orders(database: tuple[str, str]) -> AsyncIterator[Orders]:
    """A table whose keys are whole numbers."""
    async for made in _orders(*database):
        yield made


@pytest.mark.parametrize("has_status", [True, False])
async def test_every_order_is_shipped_once(bench: Bench, orders: Orders, has_status: bool) -> None:
    facts: dict[str, Any] = {} if has_status else {"where": "", "done": "", "after": "id"}
    await orders.fill(*range(-7, 45))
    async with worked(bench, orders.scan(shards=4, **facts)) as machine:
        assert sorted(await orders.shipped()) == list(range(-7, 45))
        assert set((await orders.status_of()).values()) == {int(has_status)}
        await orders.fill(100, 101)
        await machine.round()
    assert len(await orders.shipped()) == 54


async def test_a_failed_row_leaves_nothing_and_is_redriven(bench: Bench, orders: Orders) -> None:
    """What it wrote through the connection is undone with its mark."""
    broken = {2}

    async def ship(order: Any, shard: SqlShard) -> None:
        await orders.ship(order, shard)
        if order.id in broken:
            raise ValueError("no such address")

    await orders.fill(1, 2, 3)
    async with worked(bench, orders.scan(ship, max_attempts=2)) as machine:
        await machine.round()
        assert await orders.shipped() == [1, 3]
        assert await orders.status_of() == {1: 1, 2: 0, 3: 1}
        ((key, id_),) = (await machine.state())["dead"].items()
        assert key == "2"
        # Skipped, the dead row isn't fetched again.
        await orders.fill(4)
        await machine.round()
        assert await orders.shipped() == [1, 3, 4]
        assert machine.measures["orders"].dead == 1
        broken.clear()
        await redrive(bench, id_)
        await machine.turn()
        assert await orders.shipped() == [1, 3, 4, 2]
        await machine.round()
        assert (await machine.state())["dead"] == {}


async def test_an_order_that_others_marked_is_passed_over(bench: Bench, orders: Orders) -> None:
    """As by a daemon whose lease has just ended: the row is its, or ours, never both's."""

    async def ship(order: Any, shard: SqlShard) -> None:
        await orders.ship(order, shard)
        if order.id == 1:
            assert shard.connection is not None
            statement = text(f"UPDATE {orders.name} SET status = 2 WHERE id = 2")
            await shard.connection.execute(statement)

    await orders.fill(1, 2)
    async with worked(bench, orders.scan(ship)):
        assert await orders.shipped() == [1]
    assert await orders.status_of() == {1: 1, 2: 2}


async def test_rows_of_a_page_go_over_one_connection(bench: Bench, orders: Orders) -> None:
    """And one that took too long in it, or broke it, takes nothing from those behind it."""
    limit = round(deadline(0.3), 1)  # of which three rows take next to nothing
    seen = []

    async def ship(order: Any, shard: SqlShard) -> None:
        assert shard.connection is not None
        seen.append(shard.connection)
        await orders.ship(order, shard)
        if order.id == 1:
            await asyncio.Event().wait()
        if order.id == 3:
            await shard.connection.invalidate()
            raise ConnectionError("the database has gone")

    await orders.fill(1, 2, 3, 4)
    async with worked(bench, orders.scan(ship, timeout=limit, interval=-3600.0)) as machine:
        deferred = (await machine.state())["deferred"]
    assert len(set(map(id, seen))) == 1
    assert await orders.shipped() == [2, 4]
    assert await orders.status_of() == {1: 0, 2: 1, 3: 0, 4: 1}
    assert {key: row[3] for key, row in deferred.items()} == {
        "1": f"TimeoutError: the row took over {limit:g} s (timeout)",
        "3": "ConnectionError: the database has gone",
    }


async def test_without_a_transaction_the_mark_comes_last(bench: Bench, orders: Orders) -> None:
    async def ship(order: Any, shard: SqlShard) -> None:
        assert shard.connection is None
        assert await orders.status_of() == {1: 0}
        await orders.ship(order, shard)

    await orders.fill(1)
    async with worked(bench, orders.scan(ship, transaction=False)):
        assert await orders.shipped() == [1]
    assert await orders.status_of() == {1: 1}


async def test_keys_that_are_texts(bench: Bench, database: tuple[str, str]) -> None:
    slices = {"postgres": "hashtext(id)", "mariadb": "CRC32(id)", "sqlite": "unicode(id)"}
    keys = [f"{'abc'[n % 3]}-'{n}" for n in range(30)]
    async for orders in _orders(*database, "VARCHAR(40)"):
        await orders.fill(*keys)
        async with worked(bench, orders.scan(shards=3, slice=slices[database[1]])):
            assert sorted(await orders.shipped()) == sorted(keys)


LISTENING = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%{t}%' AND pid <> pg_backend_pid()"


async def is_heard(orders: Orders) -> bool:
    return bool(await orders.run(f"SELECT 1 {LISTENING}"))


async def test_a_notification_wakes_the_shard(bench: Bench, postgres: Any) -> None:
    async for orders in _orders(postgres.url, "postgres"):

        async def is_awake() -> bool:
            return bool(bench.lane(GROUP))

        async with worked(bench, orders.scan(idle=3600.0, listen=orders.name)) as machine:
            await until(partial(is_heard, orders), "the scan does not listen")
            await machine.work_off()
            await orders.fill(1)
            await orders.run("NOTIFY {t}")
            await until(is_awake, "it sleeps on")
            await machine.work_off()
            assert await orders.shipped() == [1]
            # Cut off, it listens again, and makes up for what it has missed.
            await orders.run(f"SELECT pg_terminate_backend(pid) {LISTENING}")
            await orders.fill(2)
            await until(is_awake, "it has missed what came meanwhile")
            await machine.work_off()
            assert await orders.shipped() == [1, 2]


async def test_a_silent_database_holds_no_end_up(bench: Bench, postgres: Any) -> None:
    """Of a daemon with a connection that listens, and others that are idle."""
    proxy = Proxy(postgres.port)
    await proxy.start()
    async for orders in _orders(postgres.url, "postgres"):
        orders.url = orders.url.replace(str(postgres.port), str(proxy.port))
        async with asyncio.timeout(deadline(10)), worked(bench, orders.scan(listen=orders.name)):
            await until(partial(is_heard, orders), "the scan does not listen")
            proxy.hold("up", "down")
    await proxy.stop()


async def test_a_connection_that_is_silent_listens_no_more(
    bench: Bench, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a gateway has forgotten it: it was deaf for good, and nothing was caught up on."""
    monkeypatch.setattr(sql, "PROBE", 0.1)
    monkeypatch.setattr(sql, "CLOSING", deadline(0.5))
    proxy = Proxy(postgres.port)
    await proxy.start()
    async for orders in _orders(postgres.url, "postgres"):

        async def is_awake() -> bool:
            return bool(bench.lane(GROUP))

        orders.url = orders.url.replace(str(postgres.port), str(proxy.port))
        scan = orders.scan(idle=3600.0, listen=orders.name)
        with capture_logs() as heard:

            async def is_told(event: str) -> bool:
                return event in [each["event"] for each in heard]

            async with worked(bench, scan) as machine:
                await until(partial(is_told, "scan.listening"), "the scan does not listen")
                await machine.work_off()
                proxy.hold("up", "down")
                await until(partial(is_told, "scan.not_listening"), "it waits on")
                await orders.fill(1)
                proxy.release()
                await until(is_awake, "it has missed what came meanwhile")
    await proxy.stop()


async def _work_one(scan: SqlScan) -> None:
    """The work of the first row."""
    async with asyncio.timeout(deadline(5)), scan.running():
        shard = Shard(0, 1, 10)
        [order] = await scan.rows(shard)
        async with scan.working(shard) as told:
            await scan.work(order, told)


@pytest.mark.parametrize("transaction", [True, False])
async def test_a_mark_that_is_not_answered_ends(postgres: Any, transaction: bool) -> None:
    """It held its shard, and a worker, for good."""
    async for orders in _orders(postgres.url, "postgres"):
        await orders.fill(1)
        scan = orders.scan(transaction=transaction, fetch_timeout=deadline(0.3))
        async with orders.engine.connect() as other:
            await other.execute(text(f"UPDATE {orders.name} SET status = 0"))
            with pytest.raises(TimeoutError, match=r"the mark took .*fetch_timeout"):
                await _work_one(scan)
            await other.rollback()


async def test_a_commit_that_is_not_answered_ends(postgres: Any) -> None:
    proxy = Proxy(postgres.port)
    await proxy.start()
    async for orders in _orders(postgres.url, "postgres"):

        async def ship(_order: Any, _shard: SqlShard) -> None:
            proxy.hold("up", "down")

        await orders.fill(1)
        orders.url = orders.url.replace(str(postgres.port), str(proxy.port))
        with pytest.raises(TimeoutError, match=r"the commit took .*fetch_timeout"):
            await _work_one(orders.scan(ship, fetch_timeout=deadline(1.0)))
    await proxy.stop()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "url or engine"),
        ({"url": "sqlite+aiosqlite://"}, "where or after"),
        ({"url": "sqlite+aiosqlite://", "after": "id", "done": "x = 1"}, "done marks rows"),
    ],
)
def test_what_can_not_be(facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SqlScan("orders", table="orders", **facts)


def test_a_scan_without_a_function() -> None:
    scan = SqlScan("orders", url="sqlite+aiosqlite://", table="orders", where="status = 0")
    with pytest.raises(ValueError, match="no @row"):
        scan.check()
    with pytest.raises(RuntimeError, match="isn't running"):
        _ = scan.engine
