"""Pools of workers: how many there are, and what a lease, a session and a stop do to all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from groupflow import App, Task
from groupflow.flow.python_handlers import PythonRunners
from groupflow.flow.worker import Rules
from groupflow.flow.workforce import Holding, WorkerPool, Workforce
from groupflow.settings.model import Settings
from groupflow.store.envelope import Pool
from tests.deadlines import deadline
from tests.flow.crew import Crew, Gate, crew
from tests.store.bench import Bench, arrival


class World:
    """Two pools of one daemon on the real store, whose handlers wait at a gate."""

    def __init__(self, plain: Crew, grouped: Crew) -> None:
        self.bench, self.gate, app = plain.bench, Gate(), App()

        @app.handler("t")
        async def handle(_: Task) -> None:
            await self.gate.passed()

        self.rules, self.others = (
            Rules(PythonRunners(app, plain.threads), Settings().policies(), 3, name)
            for name in ("one", "another")
        )
        self.crews: dict[Pool, Crew] = {"plain": plain, "grouped": grouped}
        self.exchangers = {name: each.exchanger for name, each in self.crews.items()}
        self.plain, self.grouped = self._pool("plain", 2), self._pool("grouped", 3)
        self.force = Workforce({"plain": self.plain, "grouped": self.grouped})
        self.holding = Holding(self.exchangers, list, lambda: None)
        self.tasks: list[asyncio.Task[None]] = []

    def _pool(self, name: Pool, size: int) -> WorkerPool:
        made = self.crews[name]
        return WorkerPool(name, made.dispatcher, [made.exchanger], rules=self.rules, size=size)

    def spawn(self, name: str, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(run, name=name)
        self.tasks.append(task)
        return task

    async def start(self, plain: int = 0, grouped: int = 0) -> None:
        """All run, so many of them a handler."""
        for each in self.exchangers.values():
            self.spawn("exchanges", each.run())
        await self.bench.enqueue(
            *(arrival(f"p{n}") for n in range(plain)),
            *(arrival(f"g{n}", f"g{n}") for n in range(grouped)),
        )
        self.force.start(self.spawn)
        async with asyncio.timeout(deadline()):
            while self.gate.running < plain + grouped:
                self.gate.reached.clear()
                await self.gate.reached.wait()

    def names(self) -> list[str]:
        return [worker.name for worker in self.plain.workers]

    async def until_gone(self, name: str) -> None:
        [task] = [each for each in self.tasks if each.get_name() == name]
        async with asyncio.timeout(deadline()):
            await task


@pytest.fixture
async def world(bench: Bench) -> AsyncIterator[World]:
    daemon = await bench.daemon()
    async with (
        crew(bench, by_hand=True, daemon=daemon, pool="plain") as plain,
        crew(bench, by_hand=True, daemon=daemon) as grouped,
    ):
        world = World(plain, grouped)
        yield world
        for task in world.tasks:
            task.cancel()
        await asyncio.gather(*world.tasks, return_exceptions=True)


async def test_a_pool_grows_at_once_and_shrinks_after_its_tasks(world: World) -> None:
    pool = world.plain
    assert (pool.size, world.names(), pool.tasks) == (2, ["plain-0", "plain-1"], [])
    await world.start(plain=2)
    pool.resize(3)
    assert (pool.size, len(pool.tasks)) == (3, 3)
    pool.resize(1)
    assert (pool.size, len(pool.workers)) == (1, 3)
    await world.until_gone("plain-2")  # it was idle
    assert world.names() == ["plain-0", "plain-1"]
    world.gate.opened.set()
    await world.until_gone("plain-1")
    assert world.names() == ["plain-0"]
    assert (len(pool.tasks), world.bench.count("done")) == (1, 2)


async def test_figures_are_of_all_pools(world: World) -> None:
    assert world.force.busy == {"plain": 0, "grouped": 0}
    await world.start(plain=1, grouped=1)
    assert world.force.busy == {"plain": 1, "grouped": 1}
    attempts = [worker._attempt for worker in world.force.workers if worker.is_busy]
    assert [world.force.names_of(each)["task"] for each in attempts] == ["p0", "g0"]
    assert world.force.names_of(None) == world.force.names_of(asyncio.current_task()) == {}


async def test_a_wake_is_for_whom_it_concerns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    for name, each in world.exchangers.items():
        monkeypatch.setattr(each, "wake", lambda name=name: woken.append(name))
    holding = world.holding
    told: list[tuple[Callable[..., None], Any, list[str]]] = [
        (holding.wake, (), ["plain", "grouped"]),
        (holding.wake, ({"grouped"},), ["grouped"]),
        (holding.wake, (set(),), []),
        (holding.claimable, (0, 0), []),
        (holding.claimable, (5, 0), ["plain"]),
        (holding.claimable, (0, 1), ["grouped"]),
    ]
    for tell, what, wakes in told:
        woken.clear()
        tell(*what)
        assert woken == wakes
