"""Who of a pool's workers is called, for what, and what becomes of claims that lie ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from groupflow.core.task import Task
from groupflow.flow import dispatcher as module
from groupflow.flow.dispatcher import READY_FOR, Dispatcher
from groupflow.flow.prefetch import Prefetch
from groupflow.flow.slots import Slot
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Release, Settlement


class Store:
    """A source of claims that only notes what the dispatcher says to it."""

    def __init__(self, dispatcher: Dispatcher, name: str = "s") -> None:
        self.name, self.prefetch, self.held, self.is_settled = name, Prefetch(), 0, True
        self.holds_lease: Callable[[], bool] = lambda: True
        self.position, self.has_some, self.waits = 0.0, True, True
        self.has_asked = False
        self.heard: list[str] = []
        self.ended: list[tuple[Slot, Settlement | None]] = []
        dispatcher.sources.append(self)

    def wake(self) -> None:
        self.heard.append("wake")

    def stir(self) -> None:
        self.heard.append("stir")

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        self.ended.append((slot, settlement))
        slot.claim, slot.finished = None, settlement

    async def settle(self, slot: Slot, settlement: Settlement | None, **_: bool) -> bool:
        self.end(slot, settlement)
        return False

    def slot(self, number: int = 0) -> Slot:
        """One that holds a claim."""
        claim = Claim(f"{self.name}-{number}", number, b"", cast(Task, None), None)
        return Slot(claim.slot, self, claim)


async def _settle_down() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Waiting:
    """Workers that wait, each with what it got."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.tasks: dict[str, asyncio.Task[Slot | None]] = {}

    async def add(self, *names: str) -> None:
        for name in names:
            self.tasks[name] = asyncio.create_task(self._dispatcher.next(name))
            await asyncio.sleep(0)

    async def hand_in(self, name: str, slot: Slot, settlement: Settlement | None) -> None:
        self.tasks[name] = asyncio.create_task(self._dispatcher.next(name, slot, settlement))
        await _settle_down()

    async def got(self) -> dict[str, Slot | None]:
        await _settle_down()
        return {name: task.result() for name, task in self.tasks.items() if task.done()}

    def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()


class Timers:
    """The loop's timers: what was to be called, and in how many seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.set: list[tuple[float, Callable[[], Any]]] = []

    def call_later(self, seconds: float, callback: Callable[[], Any]) -> asyncio.TimerHandle:
        self.set.append((seconds, callback))
        return cast(asyncio.TimerHandle, object())

    def ring(self) -> None:
        """The only one that was set, after its time."""
        [(seconds, callback)] = self.set
        self.set, self.now = [], self.now + seconds
        callback()


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    timers = Timers()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", timers.call_later)
    monkeypatch.setattr(module, "monotonic", lambda: timers.now)
    return timers


async def test_the_longest_idle_are_called_and_no_more_than_there_are_claims(
    timers: Timers,
) -> None:
    dispatcher = Dispatcher()
    store, waiting = Store(dispatcher), Waiting(dispatcher)
    await waiting.add("a", "b", "c")
    assert dispatcher.workers == 3
    first, second, third = (store.slot(n) for n in range(3))
    dispatcher.deliver([first, second])
    assert await waiting.got() == {"a": first, "b": second}
    dispatcher.deliver([third])
    assert (await waiting.got())["c"] is third
    assert dispatcher.ready == 0


async def test_a_worker_that_begins_to_wait_has_the_stores_asked(timers: Timers) -> None:
    dispatcher = Dispatcher()
    store, waiting = Store(dispatcher), Waiting(dispatcher)
    await waiting.add("a")
    assert store.heard == ["wake", "stir"]  # there is room for one more
    slot = store.slot()
    settlement = Complete(slot.held)
    again = asyncio.create_task(dispatcher.next("a", slot, settlement))
    await _settle_down()
    assert store.heard == ["wake", "stir"]  # it ends the slot: it knows of the room
    assert store.ended == [(slot, settlement)]
    again.cancel()
    waiting.stop()


async def test_a_claim_that_was_lost_may_have_left_another(timers: Timers) -> None:
    """Another worker has its group, or none: every store is asked."""
    dispatcher = Dispatcher()
    stores = [Store(dispatcher, "s"), Store(dispatcher, "t")]
    slot = stores[0].slot()
    waiting = Waiting(dispatcher)
    await waiting.add("a")
    for store in stores:
        store.heard.clear()
    await waiting.hand_in("a", slot, None)
    assert [store.heard for store in stores] == [["wake"], ["wake"]]
    other = stores[0].slot()
    await waiting.hand_in("a", other, Complete(other.held))
    assert [store.heard for store in stores] == [["wake"], ["wake"]]
    waiting.stop()


async def test_a_worker_that_retires_gets_nothing_more(timers: Timers) -> None:
    """What it has handed in is settled first; what lies ready is for those that stay."""
    dispatcher = Dispatcher()
    store, waiting = Store(dispatcher), Waiting(dispatcher)
    slot, ready = store.slot(1), store.slot(2)
    settlement = Complete(slot.held)
    await waiting.add("a", "b")
    dispatcher.retire({"a"})
    assert await waiting.got() == {"a": None}
    assert dispatcher.workers == 1
    waiting.stop()
    await _settle_down()
    dispatcher.deliver([ready])
    going = asyncio.create_task(dispatcher.next("a", slot, settlement))
    await _settle_down()
    dispatcher.answered(is_short=False)
    await _settle_down()
    assert not going.done()  # that was an exchange without its settlement
    slot.finished = None
    dispatcher.answered(is_short=False)
    assert await going is None
    assert await dispatcher.next("b", store.slot(3), settlement) is ready


async def test_one_that_lost_its_claim_retires_at_once(timers: Timers) -> None:
    dispatcher = Dispatcher()
    store = Store(dispatcher)
    dispatcher.retire({"a"})
    assert await dispatcher.next("a", store.slot(), None) is None


async def test_a_worker_that_is_wanted_again_goes_on(timers: Timers) -> None:
    dispatcher = Dispatcher()
    store, waiting = Store(dispatcher), Waiting(dispatcher)
    store.is_settled = False
    slot = store.slot()
    settlement = Complete(slot.held)
    dispatcher.retire({"a"})
    await waiting.hand_in("a", slot, settlement)
    assert dispatcher.workers == 0
    dispatcher.retire(set())
    assert await waiting.got() == {}
    assert dispatcher.workers == 1
    found = store.slot(2)
    dispatcher.deliver([found])
    assert await waiting.got() == {"a": found}


async def test_a_retiring_worker_keeps_no_claim_from_others(timers: Timers) -> None:
    """It is called too, since it stands in front; so is the one behind it."""
    dispatcher = Dispatcher()
    store, waiting = Store(dispatcher), Waiting(dispatcher)
    slot = store.slot(1)
    settlement = Complete(slot.held)
    dispatcher.retire({"a"})
    await waiting.hand_in("a", slot, settlement)
    await waiting.add("b")
    found = store.slot(2)
    dispatcher.deliver([found])
    assert await waiting.got() == {"b": found}
    waiting.stop()


async def test_one_that_was_cancelled_keeps_no_claim_from_others(timers: Timers) -> None:
    dispatcher = Dispatcher()
    store, waiting = Store(dispatcher), Waiting(dispatcher)
    await waiting.add("a", "b")
    waiting.tasks.pop("a").cancel()
    await _settle_down()
    found = store.slot()
    dispatcher.deliver([found])
    assert await waiting.got() == {"b": found}


async def test_a_stop_ends_the_idle_once_all_is_settled(timers: Timers) -> None:
    dispatcher = Dispatcher()
    store, waiting = Store(dispatcher), Waiting(dispatcher)
    await waiting.add("a", "b")
    ready = store.slot()
    waiting.tasks.pop("b").cancel()
    await _settle_down()
    dispatcher.deliver([ready, store.slot(1)])
    assert (await waiting.got()).keys() == {"a"}
    await waiting.add("c")
    assert (await waiting.got()).keys() == {"a", "c"}
    await waiting.add("d")
    store.is_settled, store.heard = False, []
    dispatcher.stop_claiming()
    assert store.heard == ["stir"]
    dispatcher.answered(is_short=False)
    assert "d" not in await waiting.got()
    store.is_settled = True
    dispatcher.answered(is_short=False)
    assert (await waiting.got())["d"] is None
    assert await dispatcher.next("e") is None


async def test_a_stop_hands_back_what_lies_ready(timers: Timers) -> None:
    dispatcher = Dispatcher()
    store = Store(dispatcher)
    slots = [store.slot(n) for n in range(3)]
    claims = [slot.held for slot in slots]
    dispatcher.deliver(slots)
    dispatcher.stop_claiming()
    assert store.ended == [
        (slot, Release(claim)) for slot, claim in zip(slots, claims, strict=True)
    ]
    assert dispatcher.ready == 0


async def test_a_short_answer_makes_room_for_the_next_that_waits(timers: Timers) -> None:
    dispatcher = Dispatcher()
    stores = [Store(dispatcher, name) for name in "stuv"]
    for store, position in zip(stores, (1.0, 0.0, 3.0, 2.0), strict=True):
        store.position = position
    waiting = Waiting(dispatcher)
    await waiting.add("a")
    for store in stores:
        store.heard.clear()
    stores[0].waits = False
    dispatcher.answered(is_short=False)
    assert [store.heard for store in stores] == [[], [], [], []]
    stores[1].waits = False
    dispatcher.answered(is_short=True)
    assert [store.heard for store in stores] == [[], [], [], ["stir"]]
    waiting.stop()


async def test_all_is_settled_where_it_is_in_all_stores(timers: Timers) -> None:
    dispatcher = Dispatcher()
    Store(dispatcher, "s")
    other = Store(dispatcher, "t")
    assert dispatcher.is_settled
    other.is_settled = False
    assert not dispatcher.is_settled


class TestTurns:
    """Whose claims come next, where several stores may have some."""

    @pytest.fixture
    async def dispatcher(self) -> AsyncIterator[Dispatcher]:
        dispatcher = Dispatcher()
        for name, position in (("s", 1.0), ("t", 2.0), ("u", 3.0)):
            Store(dispatcher, name).position = position
        waiting = Waiting(dispatcher)
        await waiting.add("a", "b", "c", "d")
        yield dispatcher
        waiting.stop()

    async def test_one_alone_asks_for_what_it_likes(self, dispatcher: Dispatcher) -> None:
        first, *others = cast(list[Store], dispatcher.sources)
        for other in others:
            other.waits = False
        dispatcher.held = 100
        assert dispatcher.granted(first, 7) == 7

    async def test_the_lowest_position_asks_first(self, dispatcher: Dispatcher) -> None:
        first, second, third = cast(list[Store], dispatcher.sources)
        assert [dispatcher.granted(each, 4) for each in (first, second, third)] == [4, 0, 0]
        first.waits = False  # it has asked
        dispatcher.held = 1
        assert [dispatcher.granted(each, 3) for each in (second, third)] == [3, 0]

    async def test_others_ask_beside_it_as_long_as_there_is_room_for_a_piece(
        self, dispatcher: Dispatcher
    ) -> None:
        _, second, _ = cast(list[Store], dispatcher.sources)
        assert dispatcher.granted(second, 3) == 3
        second.prefetch.claims = 8  # room for 12, and pieces of 4
        assert dispatcher.granted(second, 8) == 8
        assert dispatcher.granted(second, 9) == 0

    async def test_what_is_freed_comes_in_its_turn(self, dispatcher: Dispatcher) -> None:
        """The store has nothing else that it knows of: it is told of that, and waits."""
        first, *_ = cast(list[Store], dispatcher.sources)
        first.prefetch.is_empty = True
        assert dispatcher.granted(first, 4) == 0
        assert dispatcher.granted(first, 3) == 3

    async def test_no_partition_asks_for_less_than_a_piece(self, dispatcher: Dispatcher) -> None:
        first, second, _ = cast(list[Store], dispatcher.sources)
        second.prefetch.claims = 8
        dispatcher.held = 9
        assert dispatcher.granted(first, 3) == 0
        first.heard.clear()
        dispatcher.make_room()
        assert first.heard == []
        dispatcher.held = 8
        assert dispatcher.granted(first, 3) == 3
        dispatcher.make_room()
        assert first.heard == ["stir"]

    async def test_beside_others_no_more_than_is_likely_to_come(
        self, dispatcher: Dispatcher
    ) -> None:
        first, *_ = cast(list[Store], dispatcher.sources)
        first.prefetch.likely = 2
        assert dispatcher.granted(first, 4) == 2

    async def test_each_may_have_ahead_what_it_learned_and_all_the_most_of_it(
        self, dispatcher: Dispatcher
    ) -> None:
        first, second, _ = cast(list[Store], dispatcher.sources)
        second.prefetch.claims, dispatcher.held, second.held, first.held = 8, 8, 8, 0
        assert second.prefetch.wanted(dispatcher.workers, dispatcher.taken(second)) == 4
        assert first.prefetch.wanted(dispatcher.workers, dispatcher.taken(first)) == 4
        second.held = 0  # a third has them
        first.held = 2
        assert first.prefetch.wanted(dispatcher.workers, dispatcher.taken(first)) == 2


async def test_a_store_takes_back_what_is_its_own(timers: Timers) -> None:
    dispatcher = Dispatcher()
    one, other = Store(dispatcher, "s"), Store(dispatcher, "t")
    slots = [one.slot(1), other.slot(2), one.slot(3)]
    dispatcher.deliver(slots)
    assert dispatcher.withdraw(one) == [slots[0], slots[2]]
    assert dispatcher.ready == 1
    assert await dispatcher.next("a", one.slot(4), None) is slots[1]


async def test_what_is_not_begun_in_time_is_handed_back(timers: Timers) -> None:
    """To the moment; and none is made ahead of workers that are so slow."""
    dispatcher = Dispatcher()
    one, other = Store(dispatcher, "s"), Store(dispatcher, "t")
    one.prefetch.claims = other.prefetch.claims = 8
    first, second = one.slot(1), other.slot(2)
    dispatcher.deliver([first])
    timers.now += READY_FOR / 4
    dispatcher.deliver([second])
    assert [seconds for seconds, _ in timers.set] == [READY_FOR]
    assert await dispatcher.next("a", one.slot(3), None) is first
    timers.now -= READY_FOR / 4
    timers.ring()
    assert dispatcher.ready == 1
    assert [round(seconds, 9) for seconds, _ in timers.set] == [READY_FOR / 4]
    claim = second.held
    timers.now += 1e-9
    timers.ring()
    assert other.ended == [(second, Release(claim))]
    assert (one.prefetch.claims, other.prefetch.claims) == (0, 0)
    assert timers.set == []
    dispatcher.deliver([one.slot(5)])
    assert [seconds for seconds, _ in timers.set] == [READY_FOR]


async def test_where_all_is_begun_nothing_is_looked_at(timers: Timers) -> None:
    dispatcher = Dispatcher()
    store = Store(dispatcher)
    store.prefetch.claims = 8
    dispatcher.deliver([store.slot()])
    await dispatcher.next("a", store.slot(2), None)
    timers.ring()
    assert timers.set == []
    assert store.prefetch.claims == 8
    dispatcher.deliver([store.slot(3)])
    assert len(timers.set) == 1
