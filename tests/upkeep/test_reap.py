"""Whom a reaper leaves alone, and when it looks again: by a clock that the test moves."""

from __future__ import annotations

import pytest

from groupflow.core.measures import UpkeepMeasures
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.sessions import HandedOver, Session, Sessions
from groupflow.upkeep import reap
from groupflow.upkeep.reap import Reaper

LEASE = 8.0


class World(Sessions):
    """A store that says what the test wants, and a reaper before it."""

    def __init__(self) -> None:
        super().__init__(StoreClient("redis://127.0.0.1:1", Keys("none")), Session("d1"), LEASE)
        self.now, self.failed_at = 1000.0, 1000.0
        self.wait: float | None = None
        self.handed: list[HandedOver] = []
        self.passes = 0
        self.measures = UpkeepMeasures()

    async def reap(self) -> tuple[float | None, list[HandedOver]]:
        self.passes += 1
        return self.wait, self.handed

    def reaper(self, shortest: float | None = None) -> Reaper:
        return Reaper(self, LEASE, lambda: self.failed_at, self.measures, shortest)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(reap, "monotonic", lambda: world.now)
    return world


@pytest.mark.parametrize(
    ("wait", "pause"), [(None, LEASE), (1.0, 1.05), (LEASE, LEASE), (LEASE + 1, LEASE)]
)
async def test_it_looks_when_the_next_lease_may_end(
    world: World, wait: float | None, pause: float
) -> None:
    world.wait = wait
    assert await world.reaper().run_once() == pause
    assert world.passes == 1


async def test_it_looks_as_often_as_the_shortest_lease_ends(world: World) -> None:
    """A worker that pulls may come, and fall silent, behind its back."""
    assert await world.reaper(2.0).run_once() == 2.0


async def test_where_there_is_more_to_take_it_looks_soon(world: World) -> None:
    """A pass takes so many; and 100,000 may be over at once."""
    world.wait = 0.0
    assert await world.reaper().run_once() == reap.AGAIN <= 0.02


async def test_what_it_took_over_is_counted(world: World) -> None:
    world.handed = [HandedOver(f"t{n}", "g", n, "d2") for n in range(3)]
    await world.reaper().run_once()
    assert world.measures.taken_over == 3


async def test_an_outage_that_it_saw_gives_everybody_a_lease(world: World) -> None:
    """To the moment."""
    reaper = world.reaper()
    world.now = world.failed_at = 1100.0
    assert await reaper.run_once() == LEASE
    world.now += LEASE - 1.0
    assert await reaper.run_once() == 1.0
    assert world.passes == 0
    world.now += 1.0
    await reaper.run_once()
    assert world.passes == 1
