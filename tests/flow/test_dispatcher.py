"""Which of a pool's workers is called, and what becomes of claims that are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from groupflow import App, Task
from groupflow.flow import dispatcher as module
from groupflow.flow import prefetch as prefetch_module
from groupflow.flow.dispatcher import READY_FOR
from groupflow.operate.groups import Groups
from groupflow.store.settlements import Complete
from tests.flow.crew import Crew, Gate, crew, noting, quick
from tests.store.bench import Bench, Daemon, arrival


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
        monkeypatch.setattr(module, "READY_FOR", READY_FOR)
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


async def test_claims_are_made_ahead_of_quick_workers_and_handed_back_by_slow_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is ready while all workers are busy goes back, and is for anybody to claim."""
    monkeypatch.setattr(module, "READY_FOR", READY_FOR)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(400)))
    gate = Gate()
    async with crew(bench, quick(300, gate), count=4) as made:
        await made.until(lambda: bench.count("running_grouped") == 4 == gate.running)
        await made.until_done(300)
        assert max(made.came()) > 4  # at once for four workers: some were ahead
        assert (await bench.status()).queued_grouped == 96
        gate.opened.set()
        await made.until_done(400)
        await made.stop()
    assert gate.most == 4
    assert bench.judge_drained() == []


async def test_large_bodies_are_not_claimed_ahead(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However quick the handlers are: what is ready is bounded by its bytes."""
    size = len(arrival("t100", "g").envelope.body)
    monkeypatch.setattr(prefetch_module, "PREFETCH_BYTES", 3 * size)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(100, 400)))
    held: list[int] = []
    app = App()

    @app.handler("t")
    async def handle(_: Task) -> None:
        held.append(made.exchanger.held)

    async with crew(bench, app, count=4) as made:
        await made.until_done(300)
        await made.stop()
    assert 4 < max(held) <= 4 + 3


async def _crashed(bench: Bench, *slots: str) -> Daemon:
    """A daemon that claims for these slots, and dies."""
    crasher = await bench.daemon("crasher")
    await crasher.claims("grouped").exchange([], slots)
    await crasher.register()
    bench.with_faults = True
    return crasher


@pytest.mark.parametrize("pool", ["grouped", "plain"])
async def test_nothing_is_claimed_ahead_beside_what_may_end_a_daemon(
    bench: Bench, pool: str
) -> None:
    """What is ready when it does so again, in either pool, would be one crash richer."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(80)))
    await _crashed(bench, *(f"w-{n}" for n in range(80)))
    daemon = await bench.daemon()
    lane = "h{}".format if pool == "grouped" else lambda _: None
    runs = None if pool == "grouped" else await daemon.claim_one("grouped", "grouped-0")
    await bench.enqueue(*(arrival(f"u{n}", lane(n)) for n in range(300)))
    ran: list[str] = []
    app = noting(ran)
    async with crew(bench, app, count=4, daemon=daemon, pool=pool) as made:  # type: ignore[arg-type]
        beside = 80 if runs is None else 300
        await made.until(lambda: len(ran) >= beside)
        assert max(made.came()) <= 4
        if runs is not None:
            await daemon.complete(runs)
            await bench.enqueue(*(arrival(f"v{n}") for n in range(300)))
            made.dispatcher.wake()
        await made.until(lambda: max(made.came()) > 4)
        await made.stop()
    bench.events.clear()


async def test_workers_go_on_beside_a_quarantined_task(bench: Bench) -> None:
    """It comes alone; without a wake all others are claimed right behind it, and the next one."""
    await bench.enqueue(arrival("t0", "s"), arrival("t1", "z"))
    await _crashed(bench, "w-0", "w-1")
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(2, 10)))
    gate, app, ran = Gate(), App(), list[tuple[str, int]]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append((task.id, task.crashes))
        if task.crashes:
            await gate.passed()

    async with crew(bench, app, count=4) as made:
        await made.until_done(8)
        assert [id_ for id_, crashes in ran if crashes] == ["t0"]
        assert gate.running == 1
        gate.opened.set()
        await made.until_done(10)
        await made.stop()


@pytest.mark.parametrize("hold", [{"g1"}, None])
async def test_a_hold_hands_back_what_is_ready(bench: Bench, hold: set[str] | None) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(4)))
    async with crew(bench, by_hand=True) as made:
        made.prefetch.claims = 3
        slot = await made.next("w-0")
        ready = made.dispatcher.ready
        assert ready > 0
        made.exchanger.hold_back({"another"})
        assert made.dispatcher.ready == ready
        made.exchanger.hold_back(hold)
        assert made.dispatcher.ready == 0
        assert slot.held.task.id == "t0"
        await made.exchanger.run_once()
        assert bench.count("running_grouped") == 1 + made.dispatcher.ready


async def test_a_hold_hands_back_what_is_on_its_way(bench: Bench) -> None:
    """The store decides again."""
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(4)))
    async with crew(bench, noting(ran)) as made:
        made.claims.may_answer.clear()
        await made.until(lambda: bool(made.claims.exchanges))
        await Groups(bench.namespace).pause("g0", "me")
        made.exchanger.hold_back({"g0"})
        made.claims.may_answer.set()
        await made.until_done(3)
        await made.stop()
    assert ran == ["t1", "t2", "t3"]
    assert bench.lane("g0") == ["t0"]


async def test_a_worker_that_goes_first_has_its_settlement_written(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(4)))
    async with crew(bench, by_hand=True) as made:
        slot = await made.next("w-0")
        made.dispatcher.retire({"w-0"})
        waits = await made.waiting("w-0", slot, Complete(slot.held))
        made.dispatcher.answered(is_short=False)  # an exchange without its settlement
        await asyncio.sleep(0)
        assert not waits.done()
        await made.exchanger.run_once()
        assert await waits is None
    assert bench.count("done") == 1


async def test_workers_that_are_wanted_again_go_on(bench: Bench) -> None:
    """They were to go, and waited for their settlement to be written when that was taken back."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(20)))
    gate = Gate()
    async with crew(bench, quick(0, gate), count=4) as made:
        await made.until(lambda: gate.running == 4)
        made.dispatcher.retire({f"w-{n}" for n in range(4)})
        made.claims.may_answer.clear()
        before = len(made.claims.exchanges)
        gate.opened.set()
        await made.until(lambda: len(made.claims.exchanges) > before)
        made.dispatcher.retire(set())
        made.claims.may_answer.set()
        made.dispatcher.wake()
        await made.until_done(20)
        await made.stop()


async def test_a_stop_hands_back_what_is_ready(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(400)))
    gate = Gate()
    async with crew(bench, quick(300, gate), count=4) as made:
        await made.until(lambda: gate.running == 4 and made.dispatcher.ready > 0)
        made.dispatcher.stop_claiming()
        assert not made.dispatcher.ready
        gate.opened.set()
        await made.stop()
    assert bench.count("running_grouped") == 0
    assert bench.count("done") == 304
