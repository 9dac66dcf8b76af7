"""A run: one worker runs tasks of a group one after another, and its settles travel behind."""

from __future__ import annotations

import asyncio

import pytest

from groupflow import App, Task
from groupflow.flow import run as module
from groupflow.store.settlements import Proceed
from tests.flow.crew import Crew, crew, in_order, noting
from tests.store.bench import Bench, arrival


async def _is_told(made: Crew, ran: int) -> None:
    """From the second task on, others have their turn: what is done is told, and answered."""
    told = len(made.claims.behind)
    if ran > 1:
        await made.until(lambda: len(made.claims.behind) > told and made.exchanger.is_settled)


@pytest.mark.parametrize(("groups", "count"), [(1, 1), (3, 4), (20, 4)])
async def test_runs_are_run_in_order(bench: Bench, groups: int, count: int) -> None:
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % groups}") for n in range(300)))
    async with crew(bench, noting(ran), count=count, run=16) as made:
        await made.until_done(300)
        await made.stop()
        assert len(made.claims.exchanges) < 150
    assert in_order(ran, groups, 300)
    assert made.dispatcher.measures.claimed >= 300
    assert bench.count("running_grouped") == bench.count("queued_grouped") == 0


async def test_what_is_done_is_told_while_the_next_one_runs(bench: Bench) -> None:
    """However long that takes: a crash then repeats none of what was done before."""
    ran, may_end = list[str](), asyncio.Event()
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        if task.id == "t3":
            await may_end.wait()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(3)
        assert bench.lane("hot") == ["t4", "t5", "t6", "t7"]
        may_end.set()
        await made.until_done(8)
        await made.stop()
    assert ran == [f"t{n}" for n in range(8)]


async def test_a_run_goes_on_while_nobody_waits(bench: Bench) -> None:
    """One claim is enough; and no more of it is in hand than of one run."""
    ran = list[str]()
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        await _is_told(made, len(ran))

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(40)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(40)
        await made.stop()
    assert ran == [f"t{n}" for n in range(40)]
    assert sum(made.came()) == 1
    assert made.dispatcher.measures.claimed == 40
    assert 0 < max(made.claims.behind) < 8


async def test_a_run_ends_where_another_group_waits(bench: Bench) -> None:
    """With what it has in hand: one that comes has its turn, as if nothing had gone on."""
    ran, came = list[str](), list[int]()
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        if came:
            return
        await _is_told(made, len(ran))
        if len(ran) == 20:
            await bench.enqueue(arrival("other", "other", priority=3600.0))
            came.append(len(ran))

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(40)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(41)
        await made.stop()
    assert ran.index("other") - came[0] <= 8
    assert [id_ for id_ in ran if id_ != "other"] == [f"t{n}" for n in range(40)]


async def test_a_failure_ends_the_run(bench: Bench) -> None:
    """Nothing behind it begins before it is settled; then it goes first again."""
    ran: list[str] = []
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(f"{task.id}.{task.attempt}")
        if task.id == "t2" and task.attempt == 1:
            raise ValueError("no")

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(5)))
    async with crew(bench, app, run=8) as made:
        await made.until(lambda: "t2.1" in ran)
        await made.until(lambda: bench.raw.zcard(bench.keys("held")) == 1)
        assert ran == ["t0.1", "t1.1", "t2.1"]
        assert bench.lane("hot") == ["t2", "t3", "t4"]
        await made.stop()


async def test_a_run_ends_with_its_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, now = list[str](), [0.0]
    app = App()
    monkeypatch.setattr(module, "monotonic", lambda: now[0])

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        now[0] += 1.5

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(8)
        await made.stop()
        told = [each for one in made.claims.exchanges for each in one.settled]
    assert ran == [f"t{n}" for n in range(8)]
    assert max(len(each.done) for each in told if isinstance(each, Proceed)) <= 3


async def test_a_run_ends_as_a_run_where_its_rule_has_none_any_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload comes while it goes on: its slot doesn't hop past what is to be told of it."""
    ran, now = list[str](), [0.0]
    app = App()
    monkeypatch.setattr(module, "monotonic", lambda: now[0])

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        now[0] += 1.0
        if task.id == "t9":
            made.exchanger.adopt({})
        await asyncio.sleep(0.01)  # what is done before is told meanwhile

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(40)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(40)
        await made.stop()
    assert ran == [f"t{n}" for n in range(40)]
    assert made.claims.hops > 0
    assert not bench.raw.exists(bench.keys("runs"))


async def test_a_refused_piece_has_the_worker_stop(bench: Bench) -> None:
    """The store gave the group to somebody else, and the daemon hears of it by this."""
    ran: list[str] = []
    app, may_end = App(), asyncio.Event()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        if task.id == "t1":
            bench.raw.delete(bench.keys("worker", "d1"))
            await may_end.wait()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(3)))
    async with crew(bench, app, run=8) as made:
        await made.until(lambda: made.lost > 0)
        await made.until(lambda: not made.workers[0].is_busy)
        await made.until(lambda: made.exchanger.held == 0)  # nor is it asking for any
        assert ran == ["t0", "t1"]
        bench.raw.hset(bench.keys("count"), "running_grouped", 0)
        bench.raw.delete(bench.keys("lock", "hot"), bench.keys("runs"))
        bench.raw.zadd(bench.keys("ready"), {"hot": 1})
        await made.stop()
    await bench.close()
