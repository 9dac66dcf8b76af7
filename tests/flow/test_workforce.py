"""Pools of workers: how many there are, and what a lease, a session and a stop do to all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest

from groupflow import App, Task
from groupflow.flow.python_handlers import PythonRunners
from groupflow.flow.slots import ClaimSource
from groupflow.flow.worker import LocalWorker, Rules
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
        self.sessions: list[None] = []
        self.holding = Holding(
            self.exchangers, lambda: self.force.workers, lambda: self.sessions.append(None)
        )
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


async def test_a_worker_that_is_wanted_again_by_the_time_it_goes_stays(world: World) -> None:
    await world.start(plain=2)
    for size in (1, 2):
        world.plain.resize(size)
    world.gate.opened.set()
    await world.crews["plain"].until_done(2)
    world.plain.resize(0)
    world.plain.resize(2)
    await world.bench.enqueue(arrival("p2"), arrival("p3"))
    world.holding.wake()
    await world.crews["plain"].until_done(4)
    assert world.names() == ["plain-0", "plain-1"]


async def test_other_rules_and_sizes_are_everybodys(world: World) -> None:
    world.force.adopt(world.others, {"plain": 1, "grouped": 4})
    assert world.force.sizes == {"plain": 1, "grouped": 4}
    assert {worker.rules for worker in world.force.workers} == {world.others}
    assert len(world.force.workers) == 2 + 4
    world.plain.dispatcher.may_claim = False  # it stops: no worker begins
    world.force.adopt(world.rules, {"plain": 9, "grouped": 5})
    assert world.force.sizes == {"plain": 1, "grouped": 5}
    assert {worker.rules for worker in world.force.workers} == {world.rules}


async def test_figures_are_of_all_pools(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.force.busy == {"plain": 0, "grouped": 0}
    await world.start(plain=1, grouped=1)
    assert world.force.busy == {"plain": 1, "grouped": 1}
    attempts = [worker._attempt for worker in world.force.workers if worker.is_busy]
    assert [world.force.names_of(each)["task"] for each in attempts] == ["p0", "g0"]
    assert world.force.names_of(None) == world.force.names_of(asyncio.current_task()) == {}
    for seconds, each in enumerate(world.exchangers.values()):
        monkeypatch.setattr(each, "seconds_in_exchange", lambda seconds=seconds: 1.0 + seconds)
    assert world.force.seconds_in_exchange() == 2.0
    assert Workforce({}).seconds_in_exchange() == 0.0


async def test_a_wake_is_for_whom_it_concerns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    for name, each in world.exchangers.items():
        monkeypatch.setattr(each, "wake", lambda name=name: woken.append(name))
    told: list[tuple[Callable[[], None], list[str]]] = [
        (world.holding.wake, ["plain", "grouped"]),
        (lambda: world.holding.wake({"grouped"}), ["grouped"]),
        (lambda: world.holding.wake(set()), []),
        (lambda: world.holding.claimable(0, 0), []),
        (lambda: world.holding.claimable(5, 0), ["plain"]),
        (lambda: world.holding.claimable(0, 1), ["grouped"]),
    ]
    for tell, wakes in told:
        woken.clear()
        tell()
        assert woken == wakes


async def test_what_becomes_of_the_lease_reaches_all_that_run_under_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none that runs a claim of another partition."""
    heard: list[tuple[str, str]] = []
    places = [*world.exchangers.values(), cast(ClaimSource, object()), None, None]
    sources = dict(zip(world.force.workers, places, strict=True))
    monkeypatch.setattr(LocalWorker, "source", property(sources.__getitem__))
    for what in ("hand_back", "lose"):
        monkeypatch.setattr(
            LocalWorker, what, lambda worker, what=what: heard.append((worker.name, what))
        )
    world.holding.lease_ended()
    assert heard == [("plain-0", "hand_back"), ("plain-1", "hand_back")]
    world.holding.session_lost()
    assert heard[2:] == [("plain-0", "lose"), ("plain-1", "lose")]
    assert not any(each._session_open.is_set() for each in world.exchangers.values())
    world.holding.session_opened()
    assert all(each._session_open.is_set() for each in world.exchangers.values())
    assert len(world.sessions) == 1


@pytest.mark.parametrize(("drain", "done"), [(0.01, 0), (600.0, 2)])
async def test_a_stop_waits_for_what_runs_and_hands_back_the_rest(
    world: World, drain: float, done: int
) -> None:
    """With nothing left it cuts no handler off, and waits no longer."""
    await world.start(plain=1, grouped=1)
    assert len(world.force.tasks) == 5
    ending = asyncio.create_task(world.force.end(drain))
    await asyncio.sleep(0)
    assert not world.plain.dispatcher.may_claim
    assert not world.grouped.dispatcher.may_claim
    if done:
        world.gate.opened.set()
    async with asyncio.timeout(deadline()):
        await ending
    assert world.force.tasks == []
    assert (world.bench.count("done"), (await world.bench.status()).queued_plain) == (
        done,
        int(not done),
    )
