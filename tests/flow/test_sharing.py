"""How the exchanges of several partitions share the room that one dispatcher has."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.core.task import Task
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.slots import Slot
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.given import Claim
from groupflow.store.scripts import Order
from groupflow.store.settlements import Complete, Release, Settlement
from tests.flow.crew import Hand
from tests.turns import turns, turns_until

WORKERS = 4


class Backlog:
    """A partition's claims: tasks that arrived at some times, at most one running of a group.

    It stands for a store, so that figures are of the exchanges alone, and not of chance.
    """

    extended = 0.0
    pool = "grouped"

    def __init__(self, name: str, arrivals: Iterable[float], groups: int = 10**9) -> None:
        """The group of a task is its arrival modulo `groups`."""
        self.name, self.groups = name, groups
        self.arrivals = [float(at) for at in arrivals]
        self.limited: Collection[float] = ()  # those whose type has a limit
        self.running = set[float]()
        self.exchanges = 0
        self.is_away = False
        self.may_answer = opened()

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str], beyond: int = 0
    ) -> ExchangeReply:
        self.exchanges += bool(settlements or slots)
        await turns()
        await self.may_answer.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        for each in settlements:
            arrived = each.claim.task.enqueued_at
            self.running.remove(arrived % self.groups)
            if isinstance(each, Release):
                insort(self.arrivals, arrived)
        found = list[Claim]()
        for n, slot in enumerate(slots):
            free = (at for at in self.arrivals if at % self.groups not in self.running)
            if (at := next(free, None)) is not None:
                if at in self.limited and n >= len(slots) - beyond:
                    return ExchangeReply([], found, is_kept=True)
                self.arrivals.remove(at)
                self.running.add(at % self.groups)
                task = Task(f"{self.name}{at}", "t", enqueued_at=at)
                found.append(Claim(slot, 1, b"", task, None))
        return ExchangeReply([], found)


def opened() -> asyncio.Event:
    """A gate that is open."""
    gate = asyncio.Event()
    gate.set()
    return gate


class World:
    """Workers of one dispatcher that take, note and settle one claim after another."""

    def __init__(
        self, order: Order, *backlogs: Backlog, workers: int = WORKERS, seconds: float = 60.0
    ) -> None:
        """A task takes `seconds`, as far as is known: from 60 on none is made ahead."""
        self.dispatcher = Dispatcher()
        claims = [cast(Claims, each) for each in backlogs]
        self.exchangers = [Exchanger(self.dispatcher, each, order=order) for each in claims]
        self.workers, self.seconds = workers, seconds
        self.ran: list[tuple[str, float]] = []
        self.may_run = opened()
        self.gone: list[str] = []  # workers that a stop has let go

    async def _work(self, name: str) -> None:
        hand = Hand(name)
        slot: Slot | None = None
        settlement: Settlement | None = None
        while (slot := await hand.next(self.dispatcher, slot, settlement)) is not None:
            task = slot.held.task
            self.ran.append((task.id[0], task.enqueued_at))
            await turns()
            await self.may_run.wait()
            slot.source.prefetch.handled(self.seconds)
            settlement = Complete(slot.held)
        self.gone.append(name)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            work = [each.run() for each in self.exchangers]
            work += [self._work(f"w{n}") for n in range(self.workers)]
            running = [group.create_task(each) for each in work]
            yield
            for task in running:
                task.cancel()

    async def until_ran(self, number: int) -> None:
        await turns_until(lambda: len(self.ran) >= number)


async def test_the_oldest_go_first_in_each_partition() -> None:
    """As closely as one exchange allows: what one carries may be ahead of others."""
    a = Backlog("a", range(0, 2000, 2))
    b = Backlog("b", range(1, 2000, 2))
    world = World("oldest", a, b)
    async with world.working():
        await world.until_ran(2000)
    at = [arrived for _, arrived in world.ran]
    furthest = max(abs(place - arrived) for place, arrived in enumerate(at))
    assert furthest <= 20 * WORKERS, furthest


async def test_fair_is_as_many_of_each() -> None:
    """A newcomer isn't held up by a backlog of older tasks; nor does it make up for its absence."""
    a = Backlog("a", range(2000))
    b = Backlog("b", [])
    world = World("fair", a, b)
    async with world.working():
        await world.until_ran(1000)
        begun = len(world.ran)
        b.arrivals = [5000.0 + n for n in range(300)]
        world.exchangers[1].wake()
        await world.until_ran(begun + 400)
    since = [name for name, _ in world.ran[begun : begun + 400]]
    assert 150 <= since.count("b") <= 250


async def test_partitions_without_work_cost_no_exchanges() -> None:
    busy, idle = Backlog("a", range(1000)), Backlog("b", [])
    others = [Backlog("c", []) for _ in range(14)]
    world = World("oldest", busy, idle, *others)
    async with world.working():
        await world.until_ran(1000)
    assert max(each.exchanges for each in (idle, *others)) <= 2


@pytest.mark.parametrize("order", ["oldest", "fair"])
@pytest.mark.parametrize("trouble", ["is away", "hangs"])
@pytest.mark.parametrize("at", [0, 5])
async def test_trouble_with_one_holds_no_other_up(order: Order, trouble: str, at: int) -> None:
    """One that hangs has not failed yet, and it is behind: its turn is over once it has asked."""
    backlogs = [Backlog("abcdef"[n], range(n, n + 100)) for n in range(6)]
    world = World(order, *backlogs, seconds=1e-6)
    if trouble == "hangs":
        backlogs[at].may_answer.clear()
    backlogs[at].is_away = trouble == "is away"
    async with world.working():
        await world.until_ran(500)
        backlogs[at].is_away = False
        backlogs[at].may_answer.set()
        await world.until_ran(600)


async def test_a_stop_waits_for_what_any_partition_has_to_settle() -> None:
    late = Backlog("b", [2])
    world = World("oldest", Backlog("a", [1]), late, workers=2)
    world.may_run.clear()
    async with world.working():
        await world.until_ran(2)
        late.may_answer.clear()
        world.dispatcher.stop_claiming()
        world.may_run.set()
        await turns_until(lambda: [each.is_settled for each in world.exchangers] == [True, False])
        await turns(50)
        assert world.gone == []
        late.may_answer.set()
        await turns_until(lambda: len(world.gone) == 2)


async def test_room_that_one_can_not_fill_is_the_others() -> None:
    """The one that goes first has a single task; all others' workers are busy with the rest."""
    few, many = Backlog("f", [0.0]), Backlog("m", range(1, WORKERS + 1))
    world = World("oldest", few, many)
    world.may_run.clear()
    async with world.working():
        await world.until_ran(WORKERS)
        assert sorted(name for name, _ in world.ran) == ["f"] + ["m"] * (WORKERS - 1)
        world.may_run.set()
        await world.until_ran(WORKERS + 1)


@pytest.mark.parametrize(
    ("workers", "seconds", "groups"),
    [(1, 60.0, 3), (2, 1e-6, 1), (2, 60.0, 6), (64, 1e-6, 12), (64, 60.0, 1), (64, 1e-6, 3)],
)
@pytest.mark.parametrize("limited", [0, 1, 7])
@pytest.mark.parametrize("number", [1, 16])
async def test_all_is_drained_without_a_call(
    workers: int, seconds: float, groups: int, limited: int, number: int
) -> None:
    """No wake tells of what settling frees: the partition that frees it must not forget it.

    Nor does one tell of what is kept for a worker that waits: all types are `limited`, or some.
    """
    partitions = [Backlog(name, range(groups * 10), groups) for name in "abcdefghijklmnop"[:number]]
    for each in partitions:
        each.limited = each.arrivals[::limited] if limited else ()
    world = World("oldest", *partitions, workers=workers, seconds=seconds)
    async with world.working():
        await world.until_ran(number * groups * 10)
    assert len(set(world.ran)) == len(world.ran)


@pytest.mark.parametrize("number", [1, 3])
async def test_what_is_kept_is_not_asked_for_again(number: int) -> None:
    """Before a worker waits: all of them are busy."""
    backlogs = [Backlog("abc"[n], range(n, 3000, number)) for n in range(number)]
    for each in backlogs:
        each.limited = each.arrivals[::7]
    world = World("oldest", *backlogs, seconds=1e-6)
    async with world.working():
        await world.until_ran(300)
        world.may_run.clear()
        await turns(100)
        begun = [each.exchanges for each in backlogs]
        await turns(100)
        assert [each.exchanges for each in backlogs] == begun
        world.may_run.set()
        await world.until_ran(3000)


@pytest.mark.parametrize("order", ["oldest", "fair"])
async def test_what_many_partitions_have_comes_in_pieces(order: Order) -> None:
    """As large as those of one partition, or nearly: each exchange costs the same."""
    workers, tasks = 64, 6_400

    async def pieces_of(number: int) -> int:
        backlogs = [Backlog("abcdefghijklmnop"[n], range(n, tasks, number)) for n in range(number)]
        world = World(order, *backlogs, workers=workers, seconds=1e-6)
        async with world.working():
            await world.until_ran(tasks)
        return sum(backlog.exchanges for backlog in backlogs)

    one, many = await pieces_of(1), await pieces_of(16)
    assert many <= 4 * one, (one, many)


@pytest.mark.parametrize(("workers", "seconds"), [(1, 60.0), (2, 1e-6), (64, 1e-6), (64, 60.0)])
@pytest.mark.parametrize("order", ["oldest", "fair"])
@pytest.mark.parametrize("limited", [(), (1.0,)])
async def test_a_lone_task_waits_for_one_turn(
    workers: int, seconds: float, order: Order, limited: Collection[float]
) -> None:
    """It is older than what others have: they go on behind it, however much they have."""
    floods = [Backlog("abc"[n], range(1000, 4000)) for n in range(3)]
    lone = Backlog("l", [])
    world = World(order, *floods, lone, workers=workers, seconds=seconds)
    async with world.working():
        await world.until_ran(1500)
        begun, most = len(world.ran), world.dispatcher.held + workers + world.dispatcher.prefetch
        lone.arrivals, lone.limited = [1.0], limited
        world.exchangers[3].wake()
        await turns_until(lambda: ("l", 1.0) in world.ran)
    assert world.ran.index(("l", 1.0)) - begun <= most
