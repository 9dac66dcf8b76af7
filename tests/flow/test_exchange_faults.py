"""One exchange at a time, where its answer, its lease or its session is lost."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.flow import exchange as module
from groupflow.store.settlements import Complete, Release
from tests.deadlines import deadline
from tests.flow.lobby import World, names


async def test_a_settlement_that_is_refused_is_lost(world: World) -> None:
    slots = await world.run_once(4)
    world.end(*slots)
    world.store.refuse = {slots[0].name}
    with capture_logs() as logs:
        await world.run_once()
    assert [each["slot"] for each in logs] == [slots[0].name]
    assert world.dispatcher.measures.lost == 1


async def test_no_answer_sends_the_same_again(world: World) -> None:
    """In the same order; a slot that was asked for may hold a claim, and is asked first.

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
    assert not world.exchanger._exchanges
    await world.run_once()
    assert world.store.calls[3] == (settled, asked[:2])
    await world.run_once()
    assert world.store.calls[4] == ([], asked[2:])
    assert not any(slot.is_unsure for slot in slots)


async def test_an_unsure_slot_is_asked_although_no_worker_is_idle(world: World) -> None:
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
    """In portions, each without a further call."""
    world.store.errors = {1: StoreUnavailable("away")}
    with pytest.raises(StoreUnavailable):
        await world.run_once(16)
    asked = world.store.calls[0][1]
    assert len(asked) == 8
    world.dispatcher.count = 0
    await world.start()
    async with asyncio.timeout(deadline()):
        while len(world.dispatcher.delivered) < 8:
            await asyncio.sleep(0)
    assert [slot for _, slots in world.store.calls[1:] for slot in slots] == asked


async def test_without_the_lease_nothing_is_asked_for_and_all_is_settled(world: World) -> None:
    slots = await world.run_once(4)
    world.end(*slots)
    world.lease = False
    await world.run_once()
    assert world.store.calls[-1] == (names(slots), [])
    world.lease, world.dispatcher.may_claim = True, False
    await world.run_once()
    assert len(world.store.calls) == 2


@pytest.mark.parametrize("ends", ["lease", "may_claim"])
async def test_claims_that_come_behind_the_end_are_handed_back(world: World, ends: str) -> None:
    """With those that lay ready."""
    ready = await world.run_once(4)

    def end() -> None:
        if ends == "lease":
            world.lease = False
        else:
            world.dispatcher.may_claim = False

    world.store.meanwhile = end
    assert await world.run_once() == []
    due = list(world.exchanger._slots.due)
    assert names(due) == [*names(ready), "plain-2", "plain-3"]
    assert {type(slot.finished) for slot in due} == {Release}


async def test_a_session_that_went_takes_its_exchanges_along(world: World) -> None:
    """Neither their claims nor what they settled is anybody's here."""
    slots = [*await world.run_once(4), *await world.run_once()]
    world.end(slots[0], slots[1])
    world.dispatcher.delivered = [slots[3]]

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
    assert world.dispatcher.delivered == []
    assert (world.exchanger.held, world.exchanger.is_settled) == (0, True)
    assert slots[0].finished is None


async def test_an_error_behind_the_end_of_its_session_is_sent_nowhere(world: World) -> None:
    [slot] = await world.run_once(1)
    world.end(slot)
    world.dispatcher.delivered = []
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


@pytest.mark.parametrize("error", [StoreUnavailable("away"), SessionLost("reaped")])
async def test_after_an_error_it_goes_on_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """After a pause, which is over with the first answer."""
    told: list[str] = []

    class Noted:
        def next(self) -> float:
            told.append("pause")
            world.exchanger._stir.clear()  # no other call comes
            return 0.0

        def reset(self) -> None:
            told.append("reset")

    monkeypatch.setattr(module, "Backoff", Noted)
    world.dispatcher.count = 2
    world.store.errors = {1: error, 2: error}
    await world.start()
    world.exchanger.wake()
    async with asyncio.timeout(deadline()):
        while len(world.store.calls) < 3 or not world.dispatcher.delivered:
            await asyncio.sleep(0)
    assert told[:3] == ["pause", "pause", "reset"]


async def test_the_unsure_are_asked_once_the_lease_is_renewed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call comes for them; where no more is claimed they don't matter."""
    pauses: list[float] = []

    class Noted:
        def next(self) -> float:
            pauses.append(0.0)
            world.exchanger._stir.clear()
            if len(pauses) == 3:
                world.lease = True
            return 0.0

        def reset(self) -> None: ...

    world.dispatcher.count = 2
    world.store.errors = {1: StoreUnavailable("away")}
    monkeypatch.setattr(module, "Backoff", Noted)
    world.store.meanwhile = lambda: setattr(world, "lease", len(world.store.calls) > 1)
    await world.start()
    world.exchanger.wake()
    async with asyncio.timeout(deadline()):
        while not world.dispatcher.delivered:
            await asyncio.sleep(0)
    assert len(pauses) >= 3
    assert world.exchanger._slots.unsure == []
