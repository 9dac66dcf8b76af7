"""Pools of workers: how many there are, and what a lease, a session and a stop do to all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, cast

import pytest

from groupflow.core.policy import Policies
from groupflow.core.retry import RetryPolicy
from groupflow.flow import workforce as module
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.handling import Runners
from groupflow.flow.slots import ClaimSource
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.flow.workforce import Holding, WorkerPool, Workforce
from groupflow.store.envelope import Pool


def _rules(daemon: str) -> Rules:
    return Rules(cast(Runners, None), Policies(RetryPolicy(), {}), 3, daemon)


RULES, OTHERS = _rules("one"), _rules("another")


class Acting(LocalWorker):
    """A worker that runs until it is told to end, and notes what it is told."""

    def __init__(
        self, name: str, dispatcher: Dispatcher, rules: Rules, tracing: Any = None, room: Any = None
    ) -> None:
        super().__init__(name, dispatcher, rules, tracing, room)
        self.heard: list[str] = []
        self.runs = 0
        self.busy = False
        self.runs_of: ClaimSource | None = None
        self.may_end = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        return self.busy

    @property
    def source(self) -> ClaimSource | None:
        return self.runs_of

    def names_of(self, attempt: asyncio.Task[Any]) -> dict[str, Any]:
        return {"task": self.name} if self.busy else {}

    def hand_back(self) -> None:
        self.heard.append("hand back")
        self.may_end.set()

    def lose(self) -> None:
        self.heard.append("lose")

    async def run(self) -> None:
        self.runs += 1
        self.may_end.clear()
        await self.may_end.wait()


class Exchanges:
    """An exchanger that notes what it is told."""

    def __init__(self, pool: str) -> None:
        self.pool, self.seconds, self.heard = pool, 0.0, list[str]()
        self.runs: dict[str, int] = {}

    def adopt(self, runs: dict[str, int]) -> None:
        self.runs = runs

    def seconds_in_exchange(self) -> float:
        return self.seconds

    def doubt_late_calls(self) -> None:
        pass

    def wake(self) -> None:
        self.heard.append("wake")

    def close_session(self) -> None:
        self.heard.append("close")

    def open_session(self) -> None:
        self.heard.append("open")


class Lobby(Dispatcher):
    """A dispatcher that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes = 0
        self.retired: list[set[str]] = []

    def wake(self) -> None:
        self.wakes += 1

    def retire(self, workers: Any) -> None:
        self.retired.append(set(workers))


class World:
    def __init__(self) -> None:
        self.sessions = 0
        self.exchanges = {"plain": Exchanges("plain"), "grouped": Exchanges("grouped")}
        self.plain, self.grouped = self._pool("plain", 2), self._pool("grouped", 3)
        self.force = Workforce({"plain": self.plain, "grouped": self.grouped})
        exchanges = cast(dict[Pool, Exchanger], self.exchanges)
        self.holding = Holding(exchanges, lambda: self.force.workers, self._on_session)
        self.tasks: list[asyncio.Task[None]] = []

    def _pool(self, name: Any, size: int) -> WorkerPool:
        exchangers = [cast(Exchanger, self.exchanges[name])]
        return WorkerPool(name, Lobby(), exchangers, rules=RULES, size=size)

    def _on_session(self) -> None:
        self.sessions += 1

    def spawn(self, name: str, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(run, name=name)
        self.tasks.append(task)
        return task

    @property
    def workers(self) -> list[Acting]:
        found = [*self.plain.workers, *self.grouped.workers]
        return [each for each in found if isinstance(each, Acting)]

    def lobby(self, pool: WorkerPool) -> Lobby:
        assert isinstance(pool.dispatcher, Lobby)
        return pool.dispatcher


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "LocalWorker", Acting)
    world = World()
    try:
        yield world
    finally:
        for task in world.tasks:
            task.cancel()


async def _settle_down() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _named(pool: WorkerPool) -> Iterator[str]:
    return (worker.name for worker in pool.workers)


async def test_a_pool_grows_at_once_and_shrinks_after_its_tasks(world: World) -> None:
    pool, lobby = world.plain, world.lobby(world.plain)
    assert (pool.size, list(_named(pool))) == (2, ["plain-0", "plain-1"])
    assert pool.tasks == []  # none runs before the start
    pool.start(world.spawn)
    await _settle_down()
    assert [worker.runs for worker in world.workers[:2]] == [1, 1]
    pool.resize(3)
    await _settle_down()
    assert (pool.size, len(pool.tasks), world.workers[2].runs) == (3, 3, 1)
    pool.resize(1)
    assert lobby.retired[-1] == {"plain-1", "plain-2"}
    assert (pool.size, len(pool.workers)) == (1, 3)
    for worker in list(pool.workers):
        cast(Acting, worker).may_end.set()
    await _settle_down()
    assert list(_named(pool)) == ["plain-0"]
    assert len(pool.tasks) == 1
    assert cast(Acting, pool.workers[0]).runs == 2  # it is wanted still


async def test_one_that_is_wanted_again_by_the_time_it_goes_stays(world: World) -> None:
    pool = world.plain
    pool.start(world.spawn)
    await _settle_down()
    last = cast(Acting, pool.workers[1])
    pool.resize(1)
    pool.resize(2)
    last.may_end.set()
    await _settle_down()
    assert last in pool.workers
    assert last.runs == 2
    assert world.lobby(pool).retired[-1] == set()


async def test_a_worker_that_ends_after_the_stop_is_gone(world: World) -> None:
    pool = world.plain
    pool.start(world.spawn)
    await _settle_down()
    pool.dispatcher.may_claim = False
    cast(Acting, pool.workers[0]).may_end.set()
    await _settle_down()
    assert list(_named(pool)) == ["plain-1"]


async def test_other_rules_and_sizes_are_everybodys(world: World) -> None:
    world.force.adopt(OTHERS, {"plain": 1, "grouped": 4})
    assert world.force.sizes == {"plain": 1, "grouped": 4}
    assert {worker.rules for worker in world.workers} == {OTHERS}
    assert len(world.workers) == 2 + 4
    world.plain.dispatcher.may_claim = False  # it stops: no worker begins
    world.force.adopt(RULES, {"plain": 9, "grouped": 5})
    assert world.force.sizes == {"plain": 1, "grouped": 5}
    assert {worker.rules for worker in world.workers} == {RULES}


async def test_figures_are_of_all_pools(world: World) -> None:
    first, last = world.workers[0], world.workers[-1]
    first.busy = last.busy = True
    assert world.force.busy == {"plain": 1, "grouped": 1}
    running = asyncio.create_task(asyncio.sleep(0))
    assert world.force.names_of(running) == {"task": "plain-0"}
    assert world.force.names_of(None) == {}
    first.busy = last.busy = False
    assert world.force.names_of(running) == {}
    await running
    world.exchanges["plain"].seconds, world.exchanges["grouped"].seconds = 1.0, 3.0
    assert world.force.seconds_in_exchange() == 3.0
    assert Workforce({}).seconds_in_exchange() == 0.0


def _wakes(world: World) -> tuple[int, int]:
    heard = [world.exchanges[pool].heard.count("wake") for pool in ("plain", "grouped")]
    return heard[0], heard[1]


async def test_a_wake_is_for_whom_it_concerns(world: World) -> None:
    world.holding.wake()
    assert _wakes(world) == (1, 1)
    world.holding.wake({"grouped"})
    assert _wakes(world) == (1, 2)
    world.holding.wake(set())
    world.holding.claimable(0, 0)
    assert _wakes(world) == (1, 2)
    world.holding.claimable(5, 0)
    assert _wakes(world) == (2, 2)
    world.holding.claimable(0, 1)
    assert _wakes(world) == (2, 3)


async def test_what_becomes_of_the_lease_reaches_all_that_run_under_it(world: World) -> None:
    def heard() -> list[list[str]]:
        return [worker.heard for worker in world.workers if worker.runs_of is not None]

    other = cast(ClaimSource, Exchanges("plain"))  # of another partition
    places = [*world.exchanges.values(), other, None]
    for worker, place in zip(world.workers, places, strict=False):
        worker.runs_of = cast(ClaimSource, place)
    world.holding.lease_ended()
    assert heard() == [["hand back"], ["hand back"], []]
    world.holding.session_lost()
    assert heard() == [["hand back", "lose"], ["hand back", "lose"], []]
    world.holding.session_opened()
    assert [each.heard for each in world.exchanges.values()] == [["close", "open"]] * 2
    assert world.sessions == 1


async def test_a_stop_waits_for_what_runs_and_hands_back_the_rest(world: World) -> None:
    world.force.start(world.spawn)
    await _settle_down()
    assert len(world.force.tasks) == 5
    stubborn, *others = world.workers
    ending = asyncio.create_task(world.force.end(0.05))
    await _settle_down()
    assert not world.plain.dispatcher.may_claim
    assert not world.grouped.dispatcher.may_claim
    for worker in others:
        worker.may_end.set()
    await ending
    assert stubborn.heard == ["hand back"]
    assert [worker.heard for worker in others] == [[]] * 4
    assert world.force.tasks == []


async def test_a_stop_with_nothing_left_cuts_no_handler_off(world: World) -> None:
    world.force.start(world.spawn)
    await _settle_down()
    workers = world.workers
    ending = asyncio.create_task(world.force.end(600.0))
    await _settle_down()
    for worker in workers:
        worker.may_end.set()
    await ending
    assert [worker.heard for worker in workers] == [[]] * 5
