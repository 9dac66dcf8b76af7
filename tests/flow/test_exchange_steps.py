"""One exchange at a time: what goes with it, and what becomes of each slot by its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow.core.backoff import Backoff
from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.core.task import Task
from groupflow.flow import exchange as module
from groupflow.flow.demand import AT_ONCE
from groupflow.flow.exchange import UNDER_WAY, Exchanger
from groupflow.flow.hall import Hall, Slot
from groupflow.store.claims import Answer, Claims
from groupflow.store.settlements import Claim, Complete, Release, Settlement

DEADLINE = 20.0


class Store(Claims):
    """Answers as the test says: by default each slot gets a claim, as long as there are some."""

    def __init__(self) -> None:
        self.pool = "plain"
        self.left = 10**6
        self.calls: list[tuple[list[str], list[str]]] = []
        self.errors: dict[int, Exception] = {}
        self.refuse: set[str] = set()
        self.crashes = 0
        self.beside_suspect = False
        self.heard = 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        self.called = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    @property
    def extended(self) -> float:
        return self.heard

    async def exchange(self, settlements: Sequence[Settlement], slots: Sequence[str]) -> Answer:
        self.calls.append(([each.claim.slot for each in settlements], list(slots)))
        number = len(self.calls)
        self.called.set()
        await self.may_answer.wait()
        self.meanwhile()
        if number in self.errors:
            raise self.errors[number]
        given = list(slots)[: self.left]
        self.left -= len(given)
        return Answer(
            [each for each in settlements if each.claim.slot in self.refuse],
            [self.claim(slot) for slot in given],
            self.beside_suspect,
        )

    def claim(self, slot: str) -> Claim:
        task = Task(f"of {slot}", "t", crashes=self.crashes)
        return Claim(slot, 1, b"", task, None)


class Lobby(Hall):
    """A hall with as many workers as the test says, none of which takes anything by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.delivered: list[Slot] = []
        self.short: list[bool] = []

    @property
    def workers(self) -> int:
        return self.count

    def deliver(self, slots: Sequence[Slot]) -> None:
        self.delivered += slots

    def answered(self, by: Any, *, is_short: bool) -> None:
        self.short.append(is_short)

    def withdraw(self, of: Any) -> list[Slot]:
        found, self.delivered = self.delivered, []
        return found


class World:
    def __init__(self) -> None:
        self.hall, self.store, self.lease = Lobby(), Store(), True
        self.exchanger = Exchanger(self.hall, self.store, lambda: self.lease)
        self.demand = self.exchanger.demand
        self.running: asyncio.Task[None] | None = None

    async def run_once(self, workers: int | None = None) -> list[Slot]:
        """An exchange; the slots that it delivered."""
        self.hall.count = self.hall.count if workers is None else workers
        before = len(self.hall.delivered)
        self.exchanger._stir.clear()
        await self.exchanger.run_once()
        return self.hall.delivered[before:]

    def end(self, *slots: Slot) -> None:
        for slot in slots:
            self.exchanger.end(slot, Complete(slot.held))

    @property
    def is_stirred(self) -> bool:
        return self.exchanger._stir.is_set()

    async def start(self) -> None:
        self.running = asyncio.create_task(self.exchanger.run())
        await self.settle_down()

    async def settle_down(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> Any:
    world = World()
    try:
        yield world
    finally:
        if world.running is not None:
            world.running.cancel()


def names(slots: Sequence[Slot]) -> list[str]:
    return [slot.name for slot in slots]


async def test_each_exchange_carries_half_until_nobody_is_idle(world: World) -> None:
    assert names(await world.run_once(4)) == ["plain-0", "plain-1"]
    assert world.is_stirred  # the store had all that was asked for
    assert world.exchanger.held == 2
    assert names(await world.run_once()) == ["plain-2", "plain-3"]
    assert not world.is_stirred  # and now there is room for no more
    assert world.hall.short == [False, False]
    assert world.exchanger.held == 4


async def test_a_short_answer_says_so_and_asks_no_more(world: World) -> None:
    world.store.left = 1
    assert len(await world.run_once(4)) == 1
    assert world.hall.short == [True]
    assert not world.is_stirred
    assert await world.run_once() == []
    assert world.store.calls[-1] == ([], [])
    world.exchanger.wake()
    assert world.is_stirred
    await world.run_once()
    assert world.store.calls[-1][1] != []


async def test_what_is_settled_goes_with_the_next_and_the_rest_behind_it(world: World) -> None:
    for _ in range(2):
        await world.run_once(4)
    world.store.left = 0
    slots = list(world.hall.delivered)
    assert world.exchanger.is_settled
    world.end(*slots)
    assert world.is_stirred
    assert not world.exchanger.is_settled
    await world.run_once(0)  # all workers are to go
    assert world.store.calls[-1][0] == names(slots)[:2]
    assert world.is_stirred  # two are left
    assert [slot.finished for slot in slots[:2]] == [None, None]
    assert not world.exchanger.is_settled
    await world.run_once()
    assert world.is_stirred
    await world.run_once()
    assert [settled for settled, _ in world.store.calls[3:]] == [["plain-2"], ["plain-3"]]
    assert not world.is_stirred
    assert world.exchanger.is_settled


async def test_nothing_is_settled_while_it_is_on_its_way(world: World) -> None:
    [slot] = await world.run_once(1)
    world.end(slot)
    world.store.may_answer.clear()
    world.store.called.clear()
    going = asyncio.create_task(world.exchanger.run_once())
    async with asyncio.timeout(DEADLINE):
        await world.store.called.wait()
    assert not world.exchanger.is_settled
    assert world.exchanger.held == 1  # it is asked for again
    world.store.may_answer.set()
    await going
    assert world.exchanger.is_settled


async def test_what_is_on_its_way_counts_as_in_play(world: World) -> None:
    """Each exchange carries half of all, and not of what the others have left."""
    world.store.may_answer.clear()
    world.hall.count = 8
    going = [asyncio.create_task(world.exchanger.run_once()) for _ in range(2)]
    await world.settle_down()
    assert [len(asked) for _, asked in world.store.calls] == [4, 4]
    assert world.exchanger.held == 8
    world.store.may_answer.set()
    await asyncio.gather(*going)


async def test_a_settlement_that_is_refused_is_lost(world: World) -> None:
    slots = await world.run_once(4)
    world.end(*slots)
    world.store.refuse = {slots[0].name}
    with capture_logs() as logs:
        await world.run_once()
    assert [each["slot"] for each in logs] == [slots[0].name]
    assert world.hall.measures.lost == 1


async def test_no_answer_sends_the_same_again(world: World) -> None:
    """In the same order; whoever was asked for may hold a claim, and is asked first.

    Half of them at once, since so many may be too much for one answer.
    """
    slots = [*await world.run_once(4), *await world.run_once()]
    world.end(*slots)
    world.store.errors = {3: StoreUnavailable("away")}
    with pytest.raises(StoreUnavailable):
        await world.run_once()
    settled, asked = world.store.calls[2]
    assert (settled, asked) == (names(slots), names(slots))
    assert world.is_stirred
    assert world.exchanger.held == 0
    assert not world.exchanger._under_way
    await world.run_once()
    assert world.store.calls[3] == (settled, asked[:2])
    await world.run_once()
    assert world.store.calls[4] == ([], asked[2:])
    assert not any(slot.is_unsure for slot in slots)


async def test_an_unsure_slot_is_asked_although_nobody_is_idle(world: World) -> None:
    world.store.errors = {1: StoreUnavailable("away")}
    with pytest.raises(StoreUnavailable):
        await world.run_once(4)
    assert world.exchanger._slots.unsure
    delivered = [*await world.run_once(0), *await world.run_once(0)]
    asked = [slots for _, slots in world.store.calls]
    assert asked[1] + asked[2] == asked[0] == names(delivered)
    assert world.exchanger._slots.unsure == []


async def test_a_slot_that_settles_may_be_unsure_besides(world: World) -> None:
    """It is asked as well, although its worker is gone."""
    slots = [*await world.run_once(4), *await world.run_once()]
    world.end(*slots)
    world.store.errors = {3: StoreUnavailable("away")}
    with pytest.raises(StoreUnavailable):
        await world.run_once()
    settled, asked = world.store.calls[2]
    await world.run_once(0)
    assert world.store.calls[3] == (settled[:2], asked[:2])


async def test_unsure_slots_are_all_asked_in_turn(world: World) -> None:
    """In portions, and nobody has to call for the next one."""
    world.store.errors = {1: StoreUnavailable("away")}
    with pytest.raises(StoreUnavailable):
        await world.run_once(16)
    asked = world.store.calls[0][1]
    assert len(asked) == 8
    world.hall.count = 0
    await world.start()
    async with asyncio.timeout(DEADLINE):
        while len(world.hall.delivered) < 8:
            await asyncio.sleep(0)
    assert [slot for _, slots in world.store.calls[1:] for slot in slots] == asked


async def test_without_the_lease_nothing_is_asked_for_and_all_is_settled(world: World) -> None:
    slots = await world.run_once(4)
    world.end(*slots)
    world.lease = False
    await world.run_once()
    assert world.store.calls[-1] == (names(slots), [])
    world.lease, world.hall.may_claim = True, False
    await world.run_once()
    assert world.store.calls[-1] == ([], [])


@pytest.mark.parametrize("ends", ["lease", "may_claim"])
async def test_claims_that_come_behind_the_end_are_handed_back(world: World, ends: str) -> None:
    """With those that lay ready."""
    ready = await world.run_once(4)

    def end() -> None:
        if ends == "lease":
            world.lease = False
        else:
            world.hall.may_claim = False

    world.store.meanwhile = end
    assert await world.run_once() == []
    due = list(world.exchanger._slots.due)
    assert names(due) == [*names(ready), "plain-2", "plain-3"]
    assert {type(slot.finished) for slot in due} == {Release}


async def test_beside_a_suspect_nothing_is_made_ahead(world: World) -> None:
    world.demand.ahead = 8
    world.store.beside_suspect = True
    await world.run_once(1)
    assert world.demand.ahead == 0


async def test_behind_a_suspect_the_next_is_asked_for(world: World) -> None:
    """When it comes, and when its end is settled, even if the store has nothing else."""
    world.store.crashes, world.store.left = 1, 1
    [slot] = await world.run_once(4)
    assert world.is_stirred
    world.store.crashes = 0
    await world.run_once()
    assert not world.is_stirred
    world.end(slot)
    await world.run_once()
    assert world.is_stirred


async def test_how_long_an_exchange_takes_is_learned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that only settles: then as many come as were asked for, none."""
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    learned: list[tuple[int, int, float]] = []

    def answered(asked: Any, came: int, workers: int, seconds: float, largest: int = 0) -> None:
        learned.append((asked.number, came, seconds))

    monkeypatch.setattr(world.demand, "answered", answered)

    def passes() -> None:
        now[0] += 2.0
        assert world.exchanger.seconds_in_exchange() == 2.0
        world.store.heard = now[0] - 0.5  # its answer is coming
        assert world.exchanger.seconds_in_exchange() == 0.5

    world.store.meanwhile = passes
    assert world.exchanger.seconds_in_exchange() == 0.0
    slots = await world.run_once(2)
    world.end(*slots)
    world.lease = False
    await world.run_once()
    await world.run_once()  # neither: nothing is learned of it
    assert learned == [(1, 1, 2.0), (0, 0, 2.0)]
    assert world.exchanger.seconds_in_exchange() == 0.0


async def test_a_session_that_went_takes_its_exchanges_along(world: World) -> None:
    """Neither their claims nor what they settled is anybody's here."""
    slots = [*await world.run_once(4), *await world.run_once()]
    world.end(slots[0], slots[1])
    world.hall.delivered = [slots[3]]

    def goes() -> None:
        world.end(slots[2])
        world.exchanger.close_session()

    world.store.meanwhile = goes
    with capture_logs() as logs:
        await world.run_once()
    lost = [each["slot"] for each in logs if each["event"] == "claim.lost"]
    # What lay ready, what was due, and the claims that came.
    assert lost[:2] == [slots[3].name, slots[2].name]
    assert lost[2:] == world.store.calls[-1][1]
    assert world.hall.delivered == []
    assert (world.exchanger.held, world.exchanger.is_settled) == (0, True)
    assert slots[0].finished is None


async def test_an_error_behind_the_end_of_its_session_is_sent_nowhere(world: World) -> None:
    [slot] = await world.run_once(1)
    world.end(slot)
    world.hall.delivered = []
    world.store.errors = {2: SessionLost("reaped")}
    world.store.meanwhile = world.exchanger.close_session
    with capture_logs() as logs, pytest.raises(SessionLost):
        await world.run_once()
    assert [each["slot"] for each in logs] == [slot.name]
    assert slot.finished is None
    assert world.exchanger.is_settled


async def test_the_end_of_a_claim_of_an_old_session_is_lost(world: World) -> None:
    [slot] = await world.run_once(1)
    world.exchanger.close_session()
    world.exchanger._stir.clear()
    with capture_logs() as logs:
        world.exchanger.end(slot, Complete(slot.held))
    assert [each["event"] for each in logs] == ["claim.lost"]
    assert world.exchanger.is_settled
    assert not world.is_stirred


async def test_a_claim_that_was_lost_frees_its_slot(world: World) -> None:
    [slot] = await world.run_once(1)
    with capture_logs() as logs:
        world.exchanger.end(slot, None)
    assert [each["event"] for each in logs] == ["claim.lost"]
    assert world.exchanger.held == 0
    assert names(await world.run_once()) == [slot.name]


async def test_a_slot_makes_no_more_slots_than_there_is_room_for(world: World) -> None:
    chosen = world.exchanger._slots.choose([], 3)
    assert names(chosen) == ["plain-0", "plain-1", "plain-2"]
    slots = world.exchanger._slots
    slots.unsure = [cast(Slot, n) for n in range(AT_ONCE + 5)]
    assert len(slots.choose([], 2)) == AT_ONCE
    assert len(slots.unsure) == 5


async def test_exchanges_wait_for_a_session_and_go_on_with_it(world: World) -> None:
    world.hall.count = 2
    world.exchanger.close_session()
    world.exchanger.wake()
    await world.start()
    assert world.store.calls == []
    world.exchanger._stir.clear()  # whoever opens it says that there may be something
    world.exchanger.open_session()
    await world.settle_down()
    assert len(world.store.calls) == 2


async def test_behind_an_answer_the_next_one_goes_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_: Any) -> float:
        raise AssertionError("there is nothing to wait for")

    monkeypatch.setattr(Backoff, "next", pause)
    world.hall.count = 64
    await world.start()
    world.exchanger.wake()
    await world.settle_down()
    assert len(world.hall.delivered) == 64
    world.end(*world.hall.delivered[:8])
    await world.settle_down()
    assert world.running is not None
    assert not world.running.done()
    assert len(world.hall.delivered) == 64 + 8


async def test_so_many_are_under_way_at_a_time(world: World) -> None:
    world.hall.count = 1000
    world.store.may_answer.clear()
    await world.start()
    for _ in range(UNDER_WAY + 2):
        world.exchanger.wake()
        await world.settle_down()
    assert len(world.store.calls) == UNDER_WAY


@pytest.mark.parametrize("error", [StoreUnavailable("away"), SessionLost("reaped")])
async def test_after_an_error_it_goes_on_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """After a pause, which is over with the first answer."""
    told: list[str] = []

    class Noted:
        def next(self) -> float:
            told.append("pause")
            world.exchanger._stir.clear()  # nobody else calls
            return 0.0

        def reset(self) -> None:
            told.append("reset")

    monkeypatch.setattr(module, "Backoff", Noted)
    world.hall.count = 2
    world.store.errors = {1: error, 2: error}
    await world.start()
    world.exchanger.wake()
    async with asyncio.timeout(DEADLINE):
        while len(world.store.calls) < 3 or not world.hall.delivered:
            await asyncio.sleep(0)
    assert told[:3] == ["pause", "pause", "reset"]


async def test_the_unsure_are_asked_once_the_lease_is_renewed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody calls for them; where no more is claimed they are nobody's concern."""
    pauses: list[float] = []

    class Noted:
        def next(self) -> float:
            pauses.append(0.0)
            world.exchanger._stir.clear()
            if len(pauses) == 3:
                world.lease = True
            return 0.0

        def reset(self) -> None: ...

    world.hall.count = 2
    world.store.errors = {1: StoreUnavailable("away")}
    monkeypatch.setattr(module, "Backoff", Noted)
    world.store.meanwhile = lambda: setattr(world, "lease", world.store.calls[1:] == [] and False)
    await world.start()
    world.exchanger.wake()
    async with asyncio.timeout(DEADLINE):
        while len(world.store.calls) < 2:
            await asyncio.sleep(0)
        world.store.meanwhile = lambda: None
        while not world.hall.delivered:
            await asyncio.sleep(0)
    assert len(pauses) >= 3
    assert world.exchanger._slots.unsure == []
