"""Which of a pool's workers is called, and what becomes of claims that are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from groupflow.flow import dispatcher as module
from groupflow.flow.dispatcher import READY_FOR
from groupflow.store.settlements import Complete
from tests.flow.crew import Crew, crew
from tests.store.bench import Bench, arrival


async def in_turn(made: Crew, number: int) -> None:
    """So many exchanges, each with what its claims have begun."""
    for _ in range(number):
        await made.exchanger.run_once()
        for _ in range(3):
            await asyncio.sleep(0)


async def test_the_longest_idle_are_called_and_no_more_than_there_are_claims(
    bench: Bench,
) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(2)))
    async with crew(bench, by_hand=True) as made:
        waiting = [await made.waiting(name) for name in "abc"]
        assert made.dispatcher.workers == 3
        await in_turn(made, 3)
        assert [each.done() for each in waiting] == [True, True, False]
        await bench.enqueue(arrival("t2", "g2"))
        made.dispatcher.wake()
        await in_turn(made, 2)
        assert [cast(Any, await each).held.task.id for each in waiting] == ["t0", "t1", "t2"]
        assert made.dispatcher.ready == 0


async def test_what_is_ready_is_for_those_that_stay(bench: Bench) -> None:
    """One that lost its claim retires at once."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(2)))
    async with crew(bench, by_hand=True) as made:
        made.prefetch.claims = 3
        slot = await made.next("a")
        assert made.dispatcher.ready == 1
        made.dispatcher.retire({"a"})
        assert made.dispatcher.workers == 0
        assert await made.dispatcher.next("a", slot, None) is None
        assert (await made.next("b")).held.task.id == "t1"


@pytest.mark.parametrize("how", ["retires", "cancelled"])
async def test_one_that_goes_keeps_no_claim_from_others(bench: Bench, how: str) -> None:
    """It is called too, since it stands in front; so is the one behind it."""
    await bench.enqueue(arrival("t0", "g0"))
    async with crew(bench, by_hand=True) as made:
        if how == "retires":
            slot = await made.next("a")
            made.dispatcher.retire({"a"})
            first = await made.waiting("a", slot, Complete(slot.held))
            assert not first.done()
        else:
            first = await made.waiting("a")
            first.cancel()
        second = await made.waiting("b")
        await bench.enqueue(arrival("t1", "g1"))
        made.dispatcher.wake()
        await in_turn(made, 2)
        assert first.done()
        expected = "t1" if how == "retires" else "t0"
        assert cast(Any, await second).held.task.id == expected


async def test_a_claim_that_was_lost_may_have_left_another(bench: Bench) -> None:
    """Another worker has its group, or none: the store is asked, without a wake."""
    async with crew(bench, by_hand=True) as made:
        await bench.enqueue(arrival("t0", "a"))
        slot = await made.next("w-0")
        waits = await made.waiting("w-1")
        await in_turn(made, 1)  # nothing else is there
        await bench.enqueue(arrival("t1", "b"))
        await made.waiting("w-0", slot, None)
        await in_turn(made, 2)
        assert waits.done()


async def test_what_is_not_begun_in_time_is_handed_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the moment; and none is made ahead of workers that are so slow."""
    now, timers = [1000.0], list[tuple[float, Callable[[], Any]]]()

    def ring(at: float) -> None:
        [(_, callback)] = timers
        timers.clear()
        now[0] = at
        callback()

    loop = asyncio.get_running_loop()
    sound = loop.call_later

    def later(seconds: float, callback: Callable[..., Any], *given: Any) -> asyncio.TimerHandle:
        if callback != made.dispatcher._look_at_ready:
            return sound(seconds, callback, *given)
        timers.append((seconds, callback))
        return cast(asyncio.TimerHandle, object())

    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(6)))
    async with crew(bench, by_hand=True) as made:
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
        monkeypatch.setattr(loop, "call_later", later)
        made.prefetch.claims = 3
        slot = await made.next("a")
        now[0] += READY_FOR / 4
        await made.exchanger.run_once()
        assert [seconds for seconds, _ in timers] == [READY_FOR]
        slot = await made.next("a", slot, Complete(slot.held))
        assert made.dispatcher.ready == 2
        ring(1000.0 + READY_FOR)
        assert made.dispatcher.ready == 2
        assert [round(seconds, 9) for seconds, _ in timers] == [READY_FOR / 4]
        ring(1000.0 + 1.25 * READY_FOR + 1e-9)
        assert (made.dispatcher.ready, made.prefetch.claims, timers) == (0, 0, [])
        await made.exchanger.run_once()
        made.prefetch.claims = 1
        while len(timers) == 0:  # one more is made ahead, and begun in time
            made.exchanger.wake()
            await made.exchanger.run_once()
        slot = await made.next("a", slot, Complete(slot.held))
        ready, claims = made.dispatcher.ready, made.prefetch.claims
        assert ready == 0
        ring(now[0] + READY_FOR)
        assert (made.prefetch.claims, timers) == (claims, [])
        monkeypatch.undo()
