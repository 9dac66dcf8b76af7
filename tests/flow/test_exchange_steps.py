"""One exchange at a time: what goes with it, and what becomes of each slot by its answer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from groupflow.core.backoff import Backoff
from groupflow.flow import exchange, in_flight
from groupflow.flow.exchange import Exchanger
from groupflow.flow.in_flight import IN_FLIGHT
from groupflow.flow.prefetch import AT_ONCE
from groupflow.flow.slots import Slot
from tests.deadlines import deadline
from tests.flow.lobby import Store, World, names


async def test_each_exchange_carries_half_until_no_worker_is_idle(world: World) -> None:
    assert names(await world.run_once(4)) == ["plain-0", "plain-1"]
    assert world.is_stirred  # the store had all that was asked for
    assert world.exchanger.held == 2
    assert names(await world.run_once()) == ["plain-2", "plain-3"]
    assert not world.is_stirred  # and now there is room for no more
    assert world.dispatcher.short == [False, False]
    assert world.exchanger.held == 4


async def test_a_short_answer_says_so_and_asks_no_more(world: World) -> None:
    world.store.left = 1
    assert len(await world.run_once(4)) == 1
    assert world.dispatcher.short == [True]
    assert not world.is_stirred
    assert await world.run_once() == []
    assert len(world.store.calls) == 1
    world.exchanger.wake()
    assert world.is_stirred
    await world.run_once()
    assert world.store.calls[-1][1] != []


async def test_what_is_settled_goes_with_the_next_and_the_rest_behind_it(world: World) -> None:
    for _ in range(2):
        await world.run_once(4)
    world.store.left = 0
    slots = list(world.dispatcher.delivered)
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
    async with asyncio.timeout(deadline()):
        await world.store.called.wait()
    assert not world.exchanger.is_settled
    assert world.exchanger.held == 1  # it is asked for again
    world.store.may_answer.set()
    await going
    assert world.exchanger.is_settled


async def test_what_is_on_its_way_counts_as_in_play(world: World) -> None:
    """Each exchange carries half of all, and not of what the others have left."""
    world.store.may_answer.clear()
    world.dispatcher.count = 8
    going = [asyncio.create_task(world.exchanger.run_once()) for _ in range(2)]
    await world.settle_down()
    assert [len(asked) for _, asked in world.store.calls] == [4, 4]
    assert world.exchanger.held == 8
    world.store.may_answer.set()
    await asyncio.gather(*going)


async def test_beside_a_suspect_nothing_is_made_ahead(world: World) -> None:
    world.prefetch.claims = 8
    world.store.beside_quarantined = True
    await world.run_once(1)
    assert world.prefetch.claims == 0


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
    for module in (exchange, in_flight):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    learned: list[tuple[int, int, float]] = []

    def answered(asked: Any, came: int, workers: int, seconds: float, **_: int) -> None:
        learned.append((asked.number, came, seconds))

    monkeypatch.setattr(world.prefetch, "answered", answered)

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


async def test_a_slot_makes_no_more_slots_than_there_is_room_for(world: World) -> None:
    chosen = world.exchanger._slots.choose([], 3)
    assert names(chosen) == ["plain-0", "plain-1", "plain-2"]
    slots = world.exchanger._slots
    slots.unsure = [cast(Slot, n) for n in range(AT_ONCE + 5)]
    assert len(slots.choose([], 2)) == AT_ONCE
    assert len(slots.unsure) == 5


async def test_exchanges_wait_for_a_session_and_go_on_with_it(world: World) -> None:
    world.dispatcher.count = 2
    world.exchanger.close_session()
    world.exchanger.wake()
    await world.start()
    assert world.store.calls == []
    world.exchanger._stir.clear()  # opening it says that there may be something
    world.exchanger.open_session()
    await world.settle_down()
    assert len(world.store.calls) == 2


async def test_behind_an_answer_the_next_one_goes_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_: Any) -> float:
        raise AssertionError("there is nothing to wait for")

    monkeypatch.setattr(Backoff, "next", pause)
    world.dispatcher.count = 64
    await world.start()
    world.exchanger.wake()
    await world.settle_down()
    assert len(world.dispatcher.delivered) == 64
    world.end(*world.dispatcher.delivered[:8])
    await world.settle_down()
    assert world.running is not None
    assert not world.running.done()
    assert len(world.dispatcher.delivered) == 64 + 8


async def test_so_many_are_under_way_at_a_time(world: World) -> None:
    world.dispatcher.count = 10_000
    world.store.may_answer.clear()
    await world.start()
    for _ in range(IN_FLIGHT + 2):
        world.exchanger.wake()
        await world.settle_down()
    assert len(world.store.calls) == IN_FLIGHT


@pytest.mark.parametrize("is_busy", [True, False])
async def test_what_little_is_due_of_one_of_several_waits_for_its_exchange(
    world: World, *, is_busy: bool
) -> None:
    """Under way it takes more along; a store that alone has work fills its exchanges itself."""
    other = Exchanger(world.dispatcher, Store())
    if not is_busy:
        other.prefetch.is_empty = True
    first, second, *_ = await world.run_once(8)
    await other.run_once()
    world.dispatcher.count = 4
    world.store.may_answer.clear()
    world.end(first)
    going = [asyncio.create_task(world.exchanger.run_once())]
    await world.settle_down()
    assert [settled for settled, _ in world.store.calls] == [[], [first.name]]
    world.end(second)
    going.append(asyncio.create_task(world.exchanger.run_once()))
    await world.settle_down()
    assert len(world.store.calls) == (2 if is_busy else 3)
    world.exchanger._stir.clear()
    world.store.may_answer.set()
    await asyncio.gather(*going)
    assert world.is_stirred == is_busy
    await world.run_once()
    assert [settled for settled, _ in world.store.calls][2:] == [[second.name]]
