"""Scans in real daemons: killed, restarted, with other numbers of shards; a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from tests.databases import Postgres
from tests.endtoend.conftest import MakeRig, make_rig
from tests.endtoend.process import Process, until
from tests.endtoend.rig import Rig
from tests.scans.test_sql import SERIAL, Orders, _orders

__all__ = ["make_rig"]

pytestmark = pytest.mark.timeout(300)  # on a machine that others use too, daemons start slowly

APP = "tests.scans.application:app"
SICK = {13, 14}


@pytest.fixture
async def orders(postgres: Postgres) -> AsyncIterator[Orders]:
    """A table of orders."""
    async for made in _orders(postgres.url, "INTEGER", SERIAL["postgres"]):
        yield made


class World:
    """Daemons on a table."""

    def __init__(self, rig: Rig, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.orders = orders
        self._patch = monkeypatch
        for name, value in {
            "SCAN_URL": orders.url,
            "SCAN_TABLE": orders.name,
            "SCAN_FOLDER": str(rig.folder),
        }.items():
            monkeypatch.setenv(name, value)

    def start(self, name: str, **environment: str) -> Process:
        """Start a daemon and wait until it works."""
        for key, value in environment.items():
            self._patch.setenv(key, value)
        return self.start_all(name)[0]

    def start_all(self, *names: str) -> list[Process]:
        """Start several at once."""
        found = [self.rig.spawn(name, "--only", "workers", app=APP) for name in names]
        for process in found:
            process.wait_for("lease.begun")
        return found

    async def until_done(self, *ids: int) -> None:
        """Wait until all of these orders are shipped."""
        wanted = set(ids)
        found: set[Any] = set()
        for _ in range(6000):
            found = set(await self.orders.shipped())
            if wanted <= found:
                return
            await _pause()
        raise AssertionError(f"{sorted(wanted - found)} are not shipped")

    def told(self, *arguments: str) -> Any:
        """What a verb says as JSON."""
        done = self.rig.call(*arguments, "--config", str(self.rig.config), "--json")
        assert done.returncode == 0, done.stderr
        return orjson.loads(done.stdout)

    def notes(self) -> list[list[str]]:
        """What the daemons noted."""
        return [line.split() for line in (self.rig.folder / "notes").read_text().splitlines()]


async def _pause() -> None:
    import asyncio

    await asyncio.sleep(0.02)


@pytest.fixture
def world(make_rig: MakeRig, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose leases are short."""
    return World(make_rig(workers={"lease": 2.0}), orders, monkeypatch)


def _overlaps(notes: list[list[str]], killed: set[str]) -> list[str]:
    """Shards that two daemons were at, at once: one began before the other had ended."""
    at_work: dict[str, str] = {}
    found = []
    for what, _id, shard, _fence, pid in notes:
        other = at_work.get(shard)
        if other not in (None, pid) and other not in killed:
            found.append(f"shard {shard}: {pid} beside {other}")
        if what == "start":
            at_work[shard] = pid
        else:
            at_work.pop(shard, None)
    return found


async def test_a_daemon_killed_in_a_page(world: World) -> None:
    """kill -9 in the middle of a row: another daemon has the shard, and each order ships once."""
    await world.orders.fill(*range(200))
    first = world.start("d1")
    gate = world.rig.folder / f"at-gate-{first.pid}"
    until(gate.exists, first.tail)
    second = world.start("d2")
    world.rig.kill(first)
    (world.rig.folder / "gate").touch()
    await world.until_done(*(set(range(200)) - SICK))
    shipped = await world.orders.shipped()
    assert sorted(shipped) == sorted(set(range(200)) - SICK)
    assert _overlaps(world.notes(), {str(first.pid)}) == []
    until(lambda: world.told("scans")[0]["rows_dead"] == 2, second.tail)
    (story,) = world.told("scans")
    assert (story["name"], story["shards"], story["rows_deferred"]) == ("orders", 4, 0)
    dead = world.told("dead", "list")
    assert {each["group"] for each in dead} == {"scan:orders:1", "scan:orders:2"}
    assert sorted(each["reason"][:6] for each in dead) == ["row 13", "row 14"]


async def test_three_daemons_share_and_rows_come_later(world: World) -> None:
    (world.rig.folder / "gate").touch()
    await world.orders.fill(*range(20, 120))
    daemons = world.start_all("d1", "d2", "d3")
    await world.until_done(*range(20, 120))
    await world.orders.fill(*range(200, 260))
    await world.until_done(*range(200, 260))
    assert len(await world.orders.shipped()) == 160
    assert _overlaps(world.notes(), set()) == []
    (why,) = [world.told("why", "scan:orders:3")]
    assert "rows:" in why["reason"]
    world.rig.stop_all()
    assert len(daemons) == 3


async def test_a_daemon_with_more_shards(world: World) -> None:
    """A rolling restart with another number, while rows are worked on."""
    (world.rig.folder / "gate").touch()
    await world.orders.fill(*range(20, 150))
    world.start("d1")
    world.start("d2", SCAN_SHARDS="7")
    await world.until_done(*range(20, 150))
    until(lambda: world.told("scans")[0]["shards"] == 7)
    await world.orders.fill(*range(200, 230))
    await world.until_done(*range(200, 230))
    assert len(await world.orders.shipped()) == 160


async def test_a_message_ends_the_sleep(world: World) -> None:
    (world.rig.folder / "gate").touch()
    await world.orders.fill(21)
    daemon = world.rig.spawn("d1", app=APP)
    daemon.wait_for("intake.started")
    await world.until_done(21)
    until(lambda: world.told("scans")[0]["idle"] == 4, daemon.tail)
    await world.orders.fill(22)
    done = world.rig.call(
        "publish", "--config", str(world.rig.config), "--type", "scan:orders", stdin=b"{}"
    )
    assert done.returncode == 0, done.stderr
    await world.until_done(22)


async def test_the_verbs(world: World) -> None:
    (world.rig.folder / "gate").touch()
    config = ("--config", str(world.rig.config))
    assert b"no daemon has had a scan" in world.rig.call("scans", *config).stdout
    assert world.rig.call("scans", "wake", "orders", *config).returncode == 1
    daemon = world.start("d1", SCAN_IDLE="3600")
    until(lambda: world.told("scans") and world.told("scans")[0]["idle"] == 4, daemon.tail)
    await world.orders.fill(21, 22)
    assert world.told("why", "scan:orders:1")["state"] == "delayed"
    assert world.rig.call("scans", "wake", "orders", *config).returncode == 0
    until(lambda: world.told("scans")[0]["rows_done"] == 2, daemon.tail)
    shown = world.rig.call("scans", "show", "orders", *config).stdout.decode()
    assert shown.count("scan:orders:") == 4
    assert "asleep for another" in shown
    table = world.rig.call("scans", *config).stdout.decode()
    assert "orders" in table
    assert daemon.stop() == 0
    assert world.rig.call("scans", "drop", "orders", *config).returncode == 0
    assert world.told("scans") == []
