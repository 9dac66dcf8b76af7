"""Exchanges: what travels together, and that no worker waits for what could be claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from time import monotonic
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow.core.backoff import Backoff
from groupflow.core.errors import ServerUnreachable
from groupflow.core.limits import Limits
from groupflow.core.outcome import Advance
from groupflow.core.policy import Policy, RetryPolicy
from groupflow.flow import exchange as exchange_module
from groupflow.flow import slots as slots_module
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.in_flight import IN_FLIGHT
from groupflow.flow.prefetch import AT_ONCE, Asked
from groupflow.flow.settling import Ran, settlement_of
from groupflow.flow.slots import Exchange, Slot, Slots
from groupflow.flow.workforce import Holding
from groupflow.store import claims as claims_module
from groupflow.store import settlements
from groupflow.store.claims import Claims
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Release, bytes_of
from tests.deadlines import deadline
from tests.flow.crew import Gate, NotedClaims, crew, in_order, quick
from tests.store.bench import Bench, arrival
from tests.store.task_state import Bounded, found
from tests.store.test_large import large
from tests.turns import turns


def no_pause(_: Backoff) -> float:
    raise AssertionError("there is nothing to wait for")


@pytest.mark.parametrize(("workers", "groups"), [(1, 3), (5, 1), (5, 20), (16, 40)])
async def test_all_is_claimed_without_a_wake_or_a_pause(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, workers: int, groups: int
) -> None:
    """An exchange claims what it frees by settling; and no slot is asked ahead of its settlement.

    Its last claim would be handed out again, and run twice.
    """
    monkeypatch.setattr(Backoff, "next", no_pause)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % groups}") for n in range(200)))
    async with crew(bench, count=workers) as made:
        await made.finish(200)
    assert in_order(made.ran, groups, 200)
    assert (made.exchanger.held, made.dispatcher.held) == (0, 0)
    holds: set[str] = set()
    for each in made.claims.exchanges:
        settled = {one.claim.slot for one in each.settled}
        assert not set(each.asked) & holds - settled
        holds = holds - settled | set(each.came)


@pytest.mark.parametrize(("portion", "asked"), [(AT_ONCE, [32, 32]), (8, [8] * IN_FLIGHT)])
async def test_each_in_flight_has_half(bench: Bench, portion: int, asked: list[int]) -> None:
    """Of 64, and not of what the first one has left."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(80)))
    gate = Gate()
    async with crew(bench, quick(0, gate), count=64) as made:
        made.prefetch.portion = portion
        made.claims.may_answer.clear()
        for number in range(len(asked)):
            made.exchanger.wake()
            await made.until(lambda most=number: len(made.claims.exchanges) > most)  # type: ignore[misc]
        for _ in range(10):
            made.exchanger.wake()
            await turns()
        assert made.asked() == asked
        assert made.dispatcher.held == sum(asked)
        assert not made.exchanger.is_settled
        made.claims.may_answer.set()
        await made.until(lambda: gate.running == 64)
        gate.opened.set()
        await made.finish(80)


async def test_the_portion_halves_with_each_failure_and_grows_again(bench: Bench) -> None:
    """Claims that don't fit into one answer were asked for again and again, and none ever came."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(40)))
    async with crew(bench, count=16) as made:
        made.claims.fits = 1
        await made.finish(40)
    assert in_order(made.ran, 40, 40)
    assert [*dict.fromkeys(made.asked())][:4] == [8, 4, 2, 1]  # some in flight together


async def test_a_hot_group_goes_on_by_an_exchange_a_task(bench: Bench) -> None:
    """After the first ones; while it alone has work, idle workers don't ask on and on."""
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(200)))
    async with crew(bench, count=16) as made:
        await made.finish(200)
    assert in_order(made.ran, 1, 200)
    assert len(made.claims.exchanges) < 200 + 40
    assert sum(made.asked()) < 200 + 4 * 16


@pytest.mark.parametrize("lies", ["here", "apart", "told"])
async def test_what_is_large_is_settled_a_few_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lies: str
) -> None:
    """Redis frees each body while the script goes on, and answers no other client meanwhile.

    What a handler hands on comes with the call, and is as large.
    """
    size = len(arrival("t0", "g0").envelope.body)
    monkeypatch.setattr(slots_module, "FREED", 3 * size - 1)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(8)))
    async with crew(bench, by_hand=True) as made:
        waiting = [await made.waiting(f"w-{n}") for n in range(8)]
        while not all(each.done() for each in waiting):
            await made.exchanger.run_once()
            await turns()
        for n, each in enumerate(waiting):
            slot = cast(Slot, each.result())
            if lies != "here":
                slot.held.fetched = size * (lies == "apart")
                slot.held.let_go()
            result = b'"%s"' % (b"x" * (size - 2)) if lies == "told" else b""
            assert bytes_of(settlements.Advance(slot.held, "two", result or b"1" * size)) >= size
            waiting[n] = await made.waiting(f"w-{n}", slot, Complete(slot.held, result=result))
        while bench.count("done") < 8:
            await made.exchanger.run_once()
        made.dispatcher.stop_claiming()
        await made.exchanger.run_once()
        await asyncio.wait(waiting)
    settled = [len(each.settled) for each in made.claims.exchanges if each.settled]
    assert (sum(settled), max(settled)) == (8, 3)


async def test_without_the_lease_nothing_is_claimed_and_all_is_settled(bench: Bench) -> None:
    """Whether what is finished still counts is the store's to say."""
    await bench.enqueue(arrival("t0", "a"), arrival("t1", "b"))
    async with crew(bench, by_hand=True) as made:
        slot = await made.next("w-0")
        made.holds_lease = False
        waits = await made.waiting("w-0", slot, Complete(slot.held))
        await made.exchanger.run_once()
        assert (made.asked()[-1], bench.count("done")) == (0, 1)
        assert not waits.done()
        made.holds_lease = True
        await made.exchanger.run_once()
        assert await waits is not None


async def test_a_claim_that_was_slept_over_is_not_begun(bench: Bench) -> None:
    """A zombie would begin what others have taken over. (test_worker.py has it of an attempt.)"""
    await bench.enqueue(arrival("a1", "a"))
    async with crew(bench, by_hand=True) as made:
        made.claims.may_answer.clear()
        waits = await made.waiting("w-0")
        exchanging = asyncio.ensure_future(made.exchanger.run_once())
        await made.until(lambda: made.claims.calls == 1)
        made.holds_lease = False
        made.claims.may_answer.set()
        await exchanging
        await made.exchanger.run_once()
        assert not waits.done()
        assert made.kinds == [Release]
        assert bench.lane("a") == ["a1"]  # at its place
        made.holds_lease = True
        await made.exchanger.run_once()
        slot = await waits
        assert slot is not None
        assert slot.held.task.crashes == 0


async def test_a_coming_answer_is_no_silence(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor would end the daemon in the middle of a large answer."""
    extended = 0.0
    monkeypatch.setattr(claims_module.Claims, "extended", property(lambda _: extended))
    async with crew(bench) as made:
        assert made.exchanger.seconds_in_exchange() == 0
        made.claims.may_answer.clear()
        await made.until(lambda: bool(made.claims.exchanges))
        began = monotonic()
        assert 0 < made.exchanger.seconds_in_exchange() < deadline()
        extended = began + deadline()
        assert made.exchanger.seconds_in_exchange() == 0
        made.claims.may_answer.set()
        await made.stop()


@pytest.mark.parametrize("how", ["lease", "session"])
async def test_a_stop_ends_where_nothing_can_be_found_out(bench: Bench, how: str) -> None:
    """The store is away until the lease is over, or the session gone: others take it from there."""
    async with crew(bench) as made:
        made.claims.lose = set(range(10**4))
        await made.until(lambda: bool(made.claims.exchanges))
        made.dispatcher.stop_claiming()
        await made.until(lambda: len(made.claims.exchanges) > 5)  # it is asked again and again
        assert not made.running[0].done()
        if how == "lease":
            made.holds_lease = False
        else:
            made.exchanger.close_session()
        await asyncio.wait_for(made.running[0], deadline())


def refused(real: Callable[..., Awaitable[Any]], times: int = 2) -> Callable[..., Awaitable[Any]]:
    """The same call, of which Redis refuses the first ones."""
    left = count(times, -1)

    async def call(*arguments: Any) -> Any:
        if next(left) > 0:
            raise ServerUnreachable("Redis", "here", "it refused the credentials")
        return await real(*arguments)

    return call


@pytest.mark.parametrize("method", [(Claims, "exchange"), (Claim, "fetch")])
async def test_later_refusals_are_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, method: tuple[type, str]
) -> None:
    """A new primary lacks the user yet, or its password is being changed: no daemon ends."""
    monkeypatch.setattr(*method, refused(getattr(*method)))
    await bench.enqueue(*(large(f"t{n}", f"g{n}") for n in range(6)))
    async with crew(bench, count=6) as made:
        await made.finish(6)
    assert made.kinds == [Complete] * 6


async def test_a_worker_that_outlives_its_session_is_none_that_waits(bench: Bench) -> None:
    """A handler that can't be stopped has it: what came for it would be handed back, for ever."""
    await bench.enqueue(arrival("t0", "a"), arrival("t1", "b"))
    async with crew(bench, by_hand=True) as made:
        slot = await made.next("w-0")
        made.exchanger.close_session()
        made.exchanger.open_session()
        await made.exchanger.run_once()
        assert made.asked() == [1]
        waits = await made.waiting("w-0", slot, None)
        await made.exchanger.run_once()
        assert await waits is not None


async def test_what_the_store_refuses_is_lost(bench: Bench) -> None:
    await bench.enqueue(arrival("t0", "a"))
    bench.with_faults = True
    async with crew(bench, by_hand=True) as made:
        slot = await made.next("w-0")
        bench.raw.delete(bench.keys("worker", "d1"))
        await made.waiting("w-0", slot, Complete(slot.held))
        with capture_logs() as logs:
            await made.exchanger.run_once()
        assert [(log["event"], log["slot"]) for log in logs] == [("claim.lost", slot.name)]
    await bench.close()


async def test_an_advance_without_room_is_tried_again_by_the_policy(bench: Bench) -> None:
    policy = Policy(RetryPolicy(2, -60.0, 0.0), "hold", parks=False, stage_order="hold")
    await bench.enqueue(arrival("a0", "a"))
    async with crew(bench, by_hand=True) as made:
        made.claims._carrying = Bounded(50, 50)
        slot, advance = await made.next("w-0"), Advance("two", "x" * 100)
        settlement = settlement_of(slot.held, advance, policy, Ran(0.0, 0.0, "d1"))
        with capture_logs() as logs:
            waits = await made.waiting("w-0", slot, settlement)
            await made.exchanger.run_once()
        waits.cancel()
        settled = made.dispatcher.measures.types.of("t").settled
        assert (settled["retry"], settled["advance"]) == (1, 0)
    [line] = [each for each in logs if each["event"] == "task.no_room_to_carry"]
    assert (line["task"], line["tenant"], line["outcome"]) == ("a0", "42", "retry")
    task = await found(bench, "a0")
    assert (task.state, task.attempt, task.stage) == ("delayed", 2, None)
    assert "no room" in task.errors[-1]["message"]
    bench.events.clear()


@pytest.fixture
async def slots(bench: Bench) -> Slots:
    """Which are asked: a claim that only the store knows of has to come to light."""
    return Slots(Exchanger(Dispatcher(), NotedClaims(await bench.daemon())), "grouped")


def set_out(slots: Slots, number: int) -> Exchange:
    asking = slots.choose([], number)
    return Exchange(slots, [], asking, Asked(number, 0, False), monotonic())


async def test_each_free_slot_is_asked_in_its_turn(slots: Slots) -> None:
    slots.arrive(set_out(slots, 6), [])
    asked = list[str]()
    for _ in range(3):
        exchange = set_out(slots, 2)
        asked += [slot.name for slot in exchange.asking]
        slots.arrive(exchange, [])
    assert sorted(asked) == [f"grouped-{n}" for n in range(6)]


async def test_all_free_slots_are_asked_where_settles_may_be_lost(slots: Slots) -> None:
    """Those on their way at that time may have been answered before."""
    slots.arrive(set_out(slots, 4), [])
    under_way = set_out(slots, 1)
    slots.doubt()
    doubted = set_out(slots, 0)
    assert {slot.name for slot in doubted.asking} == {"grouped-1", "grouped-2", "grouped-3"}
    slots.arrive(under_way, [])
    assert slots.choose([], 0) == under_way.asking
    slots.arrive(doubted, [])
    assert slots.choose([], 0) == []


async def test_no_more_doubtful_slots_are_asked_than_one_script_does(slots: Slots) -> None:
    for exchange in [set_out(slots, number) for number in (AT_ONCE, 5)]:
        slots.arrive(exchange, [])
    slots.doubt()
    assert len(slots.choose([], 2)) == AT_ONCE


async def test_a_claim_run_late_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel sends again what was written on a connection that has long been given up."""
    monkeypatch.setattr(exchange_module, "LATE", 0.0)
    async with crew(bench) as made:
        made.claims.lose = {0}
        holding = Holding({"grouped": made.exchanger}, list, lambda: None)
        await made.until(lambda: len(made.claims.exchanges) == 2)
        (slot,) = made.claims.exchanges[0].asked
        await bench.enqueue(arrival("t0", "a"))
        answer = await Claims.exchange(made.claims, [], [slot])
        assert [claim.task.id for claim in answer.claims] == ["t0"]
        assert made.ran == []
        holding.claimable(0, 0)
        await made.until_done(1)
        assert made.ran == ["t0"]
        await made.stop()


async def test_the_log_tells_of_a_drain_as_its_task_is_first_claimed(bench: Bench) -> None:
    bench.limits = Limits(on_drained={"rule": ("", "t")})
    await bench.enqueue(arrival("t0", "a"), arrival("t1", "a"))
    with capture_logs() as logs:
        async with crew(bench) as made:
            await made.finish(3)
    (told,) = [each for each in logs if each["event"] == "group.drained"]
    facts = (told["group"], told["rule"], told["done"], told["dead"], told["task"])
    assert facts == ("a", "rule", 2, 0, made.ran[2])
