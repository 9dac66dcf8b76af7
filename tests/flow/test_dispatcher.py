"""Which of a pool's workers is called, and what becomes of claims that are ready."""

from __future__ import annotations

import asyncio

import pytest

from groupflow import Task
from groupflow.flow import dispatcher as module
from groupflow.flow import prefetch as prefetch_module
from groupflow.flow.dispatcher import READY_FOR
from groupflow.flow.workforce import WorkerPool, Workforce
from groupflow.operate.groups import Groups
from tests.deadlines import deadline
from tests.flow.crew import Gate, crew, quick
from tests.store.bench import Bench, arrival
from tests.turns import turns


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
        await turns()
        assert waits.done()


async def test_slow_workers_hand_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
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
        await made.finish(400)
    assert gate.most == 4
    assert bench.judge_drained() == []


async def test_large_bodies_are_not_ahead(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However quick the handlers are: what is ready is bounded by its bytes."""
    size = len(arrival("t100", "g").envelope.body)
    monkeypatch.setattr(prefetch_module, "PREFETCH_BYTES", 3 * size)
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(100, 400)))
    held: list[int] = []

    async def handle(_: Task) -> None:
        held.append(made.exchanger.held)

    async with crew(bench, handle, count=4) as made:
        await made.finish(300)
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
    async with crew(bench, count=4, daemon=daemon, pool="plain") as made:
        await made.until(lambda: len(made.ran) == 300)
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
    gate, crashed = Gate(), list[str]()

    async def handle(task: Task) -> None:
        if task.crashes:
            crashed.append(task.id)
            await gate.passed()

    async with crew(bench, handle, count=4) as made:
        await made.until_done(8)
        assert crashed == ["t0"]
        assert gate.running == 1
        gate.opened.set()
        await made.finish(10)


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
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(4)))
    async with crew(bench) as made:
        made.claims.may_answer.clear()
        await made.until(lambda: bool(made.claims.exchanges))
        await Groups(bench.namespace).pause("g0", "me")
        made.exchanger.hold_back({"g0"})
        made.claims.may_answer.set()
        await made.finish(3)
    assert made.ran == ["t1", "t2", "t3"]
    assert bench.lane("g0") == ["t0"]


async def test_a_pool_grows_at_once_and_shrinks_after_its_tasks(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(arrival("p0"), arrival("p1"))
    async with crew(bench, quick(0, gate), count=0, pool="plain") as made:
        pool = WorkerPool("plain", made.dispatcher, [made.exchanger], rules=made.rules, size=2)
        pool.start(lambda name, run: asyncio.create_task(run, name=name))
        await made.until(lambda: gate.running == 2)
        force = Workforce({"plain": pool})
        named = [force.names_of(worker._attempt) for worker in pool.workers]
        assert (force.busy, {each["task"] for each in named}) == ({"plain": 2}, {"p0", "p1"})
        assert force.names_of(None) == force.names_of(asyncio.current_task()) == {}
        pool.resize(3)
        assert pool.size == 3
        [_, busy, idle] = made.running = pool.tasks
        pool.resize(1)
        assert (pool.size, len(pool.workers)) == (1, 3)
        async with asyncio.timeout(deadline()):
            await idle
            assert [each.name for each in pool.workers] == ["plain-0", "plain-1"]
            gate.opened.set()
            await busy
        assert [each.name for each in pool.workers] == ["plain-0"]
        assert (len(pool.tasks), bench.count("done")) == (1, 2)


async def test_a_worker_that_has_gone_counts_no_more(bench: Bench) -> None:
    """It was wanted less still, before the task that it ran in had ended."""
    async with crew(bench, pool="plain", by_hand=True) as made:
        pool = WorkerPool("plain", made.dispatcher, [made.exchanger], rules=made.rules, size=3)
        pool.start(lambda name, run: asyncio.create_task(run, name=name))
        await turns()
        pool.resize(2)
        pool.resize(1)
        await turns(3)
        pool.resize(2)
        await turns()
        assert (len(pool.workers), made.dispatcher.workers) == (2, 2)
        made.running = pool.tasks


async def test_a_stop_without_a_session_lets_idle_workers_go(bench: Bench) -> None:
    async with crew(bench, count=2) as made:
        await turns()
        made.exchanger.close_session()
        await made.stop()


async def test_a_busy_worker_that_is_wanted_again_takes_no_other_one_s_place(bench: Bench) -> None:
    gate = Gate()
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(2)))
    async with crew(bench, quick(0, gate), count=3) as made:
        await made.until(lambda: gate.running == 2)
        busy = {worker.name for worker in made.workers if worker.is_busy}
        made.dispatcher.retire(busy)
        made.dispatcher.retire(set())
        await bench.enqueue(arrival("t2", "g2"))
        made.dispatcher.wake()
        await made.until(lambda: gate.running == 3)
        gate.opened.set()
        await made.finish(3)


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
        await made.finish(20)
