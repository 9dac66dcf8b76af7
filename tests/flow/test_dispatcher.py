"""Which of a pool's workers is called, and what becomes of claims that are ready."""

from __future__ import annotations

import asyncio

import pytest

from groupflow import App, Task
from groupflow.flow import dispatcher as module
from groupflow.flow import prefetch as prefetch_module
from groupflow.flow.dispatcher import READY_FOR
from groupflow.operate.groups import Groups
from tests.flow.crew import Gate, crew, noting, quick
from tests.store.bench import Bench, arrival


async def test_a_claim_that_was_lost_may_have_left_another(bench: Bench) -> None:
    """Another worker has its group, or none: the store is asked, without a wake."""
    async with crew(bench, by_hand=True) as made:
        await bench.enqueue(arrival("t0", "a"))
        slot = await made.next("w-0")
        waits = await made.waiting("w-1")
        await made.exchanger.run_once()  # nothing else is there
        await bench.enqueue(arrival("t1", "b"))
        await made.waiting("w-0", slot, None)
        await made.exchanger.run_once()
        await made.exchanger.run_once()
        await asyncio.sleep(0)
        assert waits.done()


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


async def _crashed(bench: Bench, *slots: str) -> None:
    """A daemon claims for these slots, and dies."""
    crasher = await bench.daemon("crasher")
    await crasher.claims("grouped").exchange([], slots)
    await crasher.register()
    bench.with_faults = True


async def test_nothing_is_claimed_ahead_beside_what_may_end_a_daemon(bench: Bench) -> None:
    """What is ready when it does so again, in either pool, would be one crash richer."""
    await bench.enqueue(arrival("t0", "g0"))
    await _crashed(bench, "w-0")
    daemon = await bench.daemon()
    runs = await daemon.claim_one("grouped", "grouped-0")
    await bench.enqueue(*(arrival(f"u{n}") for n in range(300)))
    ran: list[str] = []
    async with crew(bench, noting(ran), count=4, daemon=daemon, pool="plain") as made:
        await made.until(lambda: len(ran) == 300)
        assert max(made.came()) <= 4
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
