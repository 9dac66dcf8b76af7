"""How the exchanges of several partitions share the room that one hall has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.core.task import Task
from groupflow.flow.exchange import Exchanger
from groupflow.flow.hall import Hall
from groupflow.store.claims import Answer, Claims
from groupflow.store.scripts import Order
from groupflow.store.settlements import Claim, Complete, Settlement

WORKERS = 4
DEADLINE = 20.0


class Backlog:
    """A partition's claims: tasks that arrived at some times, each of a group of its own."""

    extended = 0.0
    pool = "grouped"

    def __init__(self, name: str, arrivals: Sequence[float]) -> None:
        self.name = name
        self.arrivals = list(arrivals)
        self.exchanges = 0
        self.asked: list[int] = []
        self.is_away = False
        self.given: list[float] = []

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str], *, ahead: bool = False
    ) -> Answer:
        self.exchanges += bool(settlements or slots)
        if slots:
            self.asked.append(len(slots))
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailable("away")
        claims = []
        for slot in slots:
            if self.arrivals:
                at = self.arrivals.pop(0)
                self.given.append(at)
                task = cast(Any, Task)(
                    id=f"{self.name}{at}", type="t", group="g", body=b"", enqueued_at=at
                )
                claims.append(Claim(slot, 1, b"", task, None))
        return Answer([], claims)


class World:
    """Workers of one hall that take, note and settle one claim after another."""

    def __init__(self, order: Order, *backlogs: Backlog) -> None:
        self.hall = Hall()
        self.exchangers = [
            Exchanger(self.hall, cast(Claims, each), order=order) for each in backlogs
        ]
        self.ran: list[tuple[str, float]] = []
        self.may_run = asyncio.Event()
        self.may_run.set()

    async def _work(self, name: str) -> None:
        slot = await self.hall.wait(name)
        while slot is not None:
            task = slot.held.task
            self.ran.append((task.id[0], task.enqueued_at))
            await asyncio.sleep(0)
            await self.may_run.wait()
            settlement = Complete(slot.held)
            slot = self.hall.hand_in(name, slot, settlement) or await self.hall.wait(
                name, slot, settlement
            )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each.run()) for each in self.exchangers]
            running += [group.create_task(self._work(f"w{n}")) for n in range(WORKERS)]
            yield
            for task in running:
                task.cancel()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0)


async def test_the_oldest_go_first_wherever_they_lie() -> None:
    """As closely as one exchange allows: what one carries may be ahead of others."""
    a = Backlog("a", [float(n) for n in range(0, 2000, 2)])
    b = Backlog("b", [float(n) for n in range(1, 2000, 2)])
    world = World("oldest", a, b)
    async with world.working():
        await world.until(lambda: len(world.ran) == 2000)
    at = [arrived for _, arrived in world.ran]
    furthest = max(abs(place - arrived) for place, arrived in enumerate(at))
    assert furthest <= 20 * WORKERS, furthest


async def test_a_backlog_of_older_tasks_goes_before_one_of_newer() -> None:
    new = Backlog("n", [1000.0 + n for n in range(300)])
    old = Backlog("o", [float(n) for n in range(300)])
    world = World("oldest", new, old)
    async with world.working():
        await world.until(lambda: len(world.ran) == 600)
    first = [name for name, _ in world.ran[:300]]
    assert first.count("o") >= 300 - 10 * WORKERS


async def test_fair_is_as_many_of_each() -> None:
    """A newcomer isn't held up by a backlog of older tasks; nor does it make up for its absence."""
    a = Backlog("a", [float(n) for n in range(2000)])
    b = Backlog("b", [])
    world = World("fair", a, b)
    async with world.working():
        await world.until(lambda: len(world.ran) >= 1000)
        begun = len(world.ran)
        b.arrivals = [5000.0 + n for n in range(300)]
        world.exchangers[1].wake()
        await world.until(lambda: len(world.ran) >= begun + 400)
    since = [name for name, _ in world.ran[begun : begun + 400]]
    assert 150 <= since.count("b") <= 250


async def test_partitions_without_work_cost_no_exchanges() -> None:
    busy, idle = Backlog("a", [float(n) for n in range(1000)]), Backlog("b", [])
    others = [Backlog("c", []) for _ in range(14)]
    world = World("oldest", busy, idle, *others)
    async with world.working():
        await world.until(lambda: len(world.ran) == 1000)
    assert max(each.exchanges for each in (idle, *others)) <= 2


@pytest.mark.parametrize("order", ["oldest", "fair"])
async def test_one_that_is_away_holds_nobody_up(order: Order) -> None:
    away, other = Backlog("a", [0.0]), Backlog("b", [1.0 + n for n in range(500)])
    away.is_away = True
    world = World(order, away, other)
    async with world.working():
        await world.until(lambda: len(world.ran) == 500)
        away.is_away = False
        await world.until(lambda: len(world.ran) == 501)


async def test_room_that_one_can_not_fill_is_the_others() -> None:
    """The one that goes first has a single task; all others' workers are busy with the rest."""
    few, many = Backlog("f", [0.0]), Backlog("m", [1.0 + n for n in range(WORKERS)])
    world = World("oldest", few, many)
    world.may_run.clear()
    async with world.working():
        await world.until(lambda: len(world.ran) == WORKERS)
        assert sorted(name for name, _ in world.ran) == ["f"] + ["m"] * (WORKERS - 1)
        world.may_run.set()
        await world.until(lambda: len(world.ran) == WORKERS + 1)
