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

    def __init__(self, shortest: float | None = None) -> None:
        super().__init__(StoreClient("redis://127.0.0.1:1", Keys("none")), Session("d1"), LEASE)
        self.failed_at = 1000.0
        self.wait: float | None = None
        self.passes = 0
        self.measures = UpkeepMeasures()
        self.reaper = Reaper(self, LEASE, lambda: self.failed_at, self.measures, shortest)

    async def reap(self) -> tuple[float | None, list[HandedOver]]:
        self.passes += 1
        return self.wait, [HandedOver(f"t{n}", "g", n, "d2") for n in range(3)]


@pytest.mark.parametrize(
    ("wait", "shortest", "pause"),
    [
        # When the next lease may end, and as often as the shortest one ends: a worker that pulls
        # may come, and fall silent, behind its back.
        (None, None, LEASE),
        (1.0, None, 1.05),
        (LEASE, None, LEASE),
        (LEASE + 1, None, LEASE),
        (None, 2.0, 2.0),
        (0.0, None, reap.AGAIN),  # a pass takes so many, and there is more to take
    ],
)
async def test_when_it_looks_again(
    wait: float | None, shortest: float | None, pause: float
) -> None:
    world = World(shortest)
    world.wait = wait
    assert await world.reaper.run_once() == pause
    assert (world.passes, world.measures.taken_over) == (1, 3)


async def test_an_outage_that_it_saw_gives_everybody_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the moment."""
    now = [1000.0]
    monkeypatch.setattr(reap, "monotonic", lambda: now[0])
    world = World()
    now[0] = world.failed_at = 1100.0
    assert await world.reaper.run_once() == LEASE
    now[0] += LEASE - 1.0
    assert await world.reaper.run_once() == 1.0
    assert world.passes == 0
    now[0] += 1.0
    await world.reaper.run_once()
    assert world.passes == 1
