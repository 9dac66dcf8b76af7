"""Scans in real daemons: killed, restarted, with other numbers of shards; a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from groupflow.operate.namespace import Namespace
from groupflow.operate.scans import Scans, ScanStory
from groupflow.store.client import StoreClient
from tests.databases import Postgres
from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig, make_rig
from tests.endtoend.process import Process
from tests.endtoend.rig import Rig
from tests.scans.test_sql import SERIAL, Orders, _orders
from tests.servers.replicated import until

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
        monkeypatch.setenv("SCAN_URL", orders.url)
        monkeypatch.setenv("SCAN_TABLE", orders.name)
        monkeypatch.setenv("SCAN_FOLDER", str(rig.folder))

    def start(self, *names: str, intake: bool = False, **environment: str) -> list[Process]:
        """Start daemons and wait until they work."""
        for key, value in environment.items():
            self._patch.setenv(key, value)
        only = () if intake else ("--only", "workers")
        found = [self.rig.spawn(name, *only, app=APP) for name in names]
        for process in found:
            process.wait_for("lease.begun")
        return found

    async def until_done(self, *ids: int) -> None:
        """Wait until all of these orders are shipped."""

        async def is_done() -> bool:
            return {*ids} <= {*await self.orders.shipped()}

        await until(is_done, "not all orders are shipped")

    async def until_it(self, is_so: Callable[[ScanStory], bool]) -> ScanStory:
        """Wait until the scan's story is so."""
        stories: list[ScanStory] = []
        client = StoreClient(self.rig.store.url, self.rig.keys)

        async def is_told() -> bool:
            stories.extend(await Scans(Namespace([client])).every())
            return bool(stories) and is_so(stories[-1])

        try:
            await until(is_told, "the scan's story does not come to that")
        finally:
            await client.close()
        return stories[-1]

    def told(self, *arguments: str) -> Any:
        """What a verb says as JSON."""
        done = self.rig.call(*arguments, "--config", str(self.rig.config), "--json")
        assert done.returncode == 0, done.stderr
        return orjson.loads(done.stdout)

    def notes(self) -> list[list[str]]:
        """What the daemons noted."""
        return [line.split() for line in (self.rig.folder / "notes").read_text().splitlines()]


@pytest.fixture
def world(make_rig: MakeRig, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose leases are short."""
    return World(make_rig(workers={"lease": short_lease(2.0)}), orders, monkeypatch)


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
    (first,) = world.start("d1")
    gate = world.rig.folder / f"at-gate-{first.pid}"
    world.rig.until(gate.exists, "a daemon at the gate")
    world.start("d2")
    world.rig.kill(first)
    (world.rig.folder / "gate").touch()
    await world.until_done(*(set(range(200)) - SICK))
    shipped = await world.orders.shipped()
    assert sorted(shipped) == sorted(set(range(200)) - SICK)
    assert _overlaps(world.notes(), {str(first.pid)}) == []
    story = await world.until_it(lambda story: story.rows_dead == 2)
    assert (story.name, story.shards, story.rows_deferred) == ("orders", 4, 0)
    dead = world.told("dead", "list")
    assert {each["group"] for each in dead} == {"scan:orders:1", "scan:orders:2"}
    assert sorted(each["reason"][:6] for each in dead) == ["row 13", "row 14"]


async def test_daemons_share_and_a_newer_one_wants_more_shards(world: World) -> None:
    """A rolling restart with another number, while rows are worked on; and rows come later."""
    (world.rig.folder / "gate").touch()
    await world.orders.fill(*range(20, 150))
    world.start("d1", "d2")
    world.start("d3", SCAN_SHARDS="7")
    await world.until_done(*range(20, 150))
    await world.until_it(lambda story: story.shards == 7)
    await world.orders.fill(*range(200, 260))
    await world.until_done(*range(200, 260))
    assert len(await world.orders.shipped()) == 190
    assert _overlaps(world.notes(), set()) == []
    world.rig.stop_all()


async def test_the_verbs(world: World) -> None:
    """And a message, which ends the sleep too."""
    (world.rig.folder / "gate").touch()
    config = ("--config", str(world.rig.config))
    assert b"no daemon has had a scan" in world.rig.call("scans", *config).stdout
    assert world.rig.call("scans", "wake", "orders", *config).returncode == 1
    (daemon,) = world.start("d1", intake=True, SCAN_IDLE="3600")
    await world.until_it(lambda story: story.idle == 4)
    await world.orders.fill(21, 22)
    assert world.told("why", "scan:orders:1")["state"] == "delayed"
    status = world.told("status")["grouped"]
    assert (status["queued"], status["asleep"]) == (4, 4)
    assert world.rig.call("scans", "wake", "orders", *config).returncode == 0
    await world.until_it(lambda story: story.rows_done == 2 and story.idle == 4)
    await world.orders.fill(23)
    publish = ("publish", *config, "--type", "scan:orders")
    assert world.rig.call(*publish, stdin=b"{}").returncode == 0
    await world.until_it(lambda story: story.rows_done == 3)
    shown = world.rig.call("scans", "show", "orders", *config).stdout.decode()
    assert shown.count("scan:orders:") == 4
    assert "asleep for another" in shown
    assert world.told("scans")[0]["rows_done"] == 3
    assert "orders" in world.rig.call("scans", *config).stdout.decode()
    assert daemon.stop() == 0
    assert world.rig.call("scans", "drop", "orders", *config).returncode == 0
    assert world.told("scans") == []
