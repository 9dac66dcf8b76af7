"""A run: one worker runs tasks of a group one after another, and its settles travel behind."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from groupflow import App, Retry, Task
from groupflow.flow import run as module
from groupflow.store.settlements import Proceed
from tests.deadlines import deadline
from tests.flow.hot import crew
from tests.store.bench import Bench, arrival


def _app(ran: list[str]) -> App:
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)

    return app


def _numbers(ran: list[str], group: int, groups: int) -> list[int]:
    return [int(id_[1:]) for id_ in ran if int(id_[1:]) % groups == group]


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("groups", [1, 3, 20])
async def test_runs_are_run_in_order(bench: Bench, groups: int, count: int) -> None:
    ran: list[str] = []
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % groups}") for n in range(300)))
    async with crew(bench, _app(ran), count=count, run=16) as made:
        await made.until_done(300)
        await made.stop()
        assert made.claims.exchanged < 150
    assert len(ran) == 300
    for group in range(groups):
        assert _numbers(ran, group, groups) == list(range(group, 300, groups))
    assert made.dispatcher.measures.claimed >= 300
    assert bench.count("running_grouped") == bench.count("queued_grouped") == 0


@pytest.mark.parametrize("seed", range(4))
async def test_lost_replies_cost_nothing(bench: Bench, seed: int) -> None:
    """Handlers take some turns of the loop, some fail once, and replies are lost at random."""
    ran, chance = list[str](), Random(seed)
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> Retry | None:
        await asyncio.sleep(chance.choice((0, 0, 0.002, 0.004)))
        if task.attempt == 1 and chance.random() < 0.05:
            return Retry(after=0)
        ran.append(task.id)
        return None

    await bench.enqueue(*(arrival(f"t{n}", f"g{n % 4}") for n in range(200)))
    async with crew(bench, app, count=3, run=12) as made:
        made.claims.lose_exchanges = {n for n in range(1, 400) if chance.random() < 0.2}
        await made.until_done(200)
        await made.stop()
    assert sorted(ran) == sorted(f"t{n}" for n in range(200))
    for group in range(4):
        assert _numbers(ran, group, 4) == list(range(group, 200, 4))


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
        # Others have their turn: what is done is told, and answered.
        told = len(made.claims.behind)
        await made.until(lambda: len(made.claims.behind) > told or len(ran) % 4 > 0)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(100)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(100)
        await made.stop()
    assert ran == [f"t{n}" for n in range(100)]
    assert made.claims.claimed == ["t0"]
    assert made.dispatcher.measures.claimed == 100
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
        told = len(made.claims.behind)
        await made.until(lambda: len(made.claims.behind) > told or len(ran) % 4 > 0)
        if len(ran) == 40:
            await bench.enqueue(arrival("other", "other", priority=3600.0))
            came.append(len(ran))

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(100)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(101)
        await made.stop()
    assert ran.index("other") - came[0] <= 8
    assert [id_ for id_ in ran if id_ != "other"] == [f"t{n}" for n in range(100)]


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


async def test_a_stop_lets_the_task_end_and_no_more(bench: Bench) -> None:
    ran: list[str] = []
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        if task.id == "t2":
            made.dispatcher.stop_claiming()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, run=8) as made:
        async with asyncio.timeout(deadline()):
            await asyncio.gather(*made.running)
    assert ran == ["t0", "t1", "t2"]
    assert bench.count("done") == 3
    assert bench.lane("hot") == [f"t{n}" for n in range(3, 8)]
    assert not bench.raw.exists(bench.keys("runs"))


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
        ends = [len(each.done) for each in made.claims.settled if isinstance(each, Proceed)]
    assert ran == [f"t{n}" for n in range(8)]
    assert max(ends) <= 3


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
    assert made.claims.hopped > 0
    assert not bench.raw.exists(bench.keys("runs"))


async def test_a_lease_that_ends_lets_nothing_of_the_run_begin(bench: Bench) -> None:
    ran: list[str] = []
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        if task.id == "t2":
            made.holds_lease = False

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, run=8) as made:
        await made.until(lambda: not made.holds_lease and bench.count("done") == 3)
        assert ran == ["t0", "t1", "t2"]
        made.holds_lease = True
        made.exchanger.wake()
        await made.until_done(8)
        await made.stop()
    assert ran == [f"t{n}" for n in range(8)]


async def test_a_session_that_goes_takes_the_run_along(bench: Bench) -> None:
    """Another one has it from its first unsettled task on; here nothing more of it begins."""
    ran: list[str] = []
    app, may_end = App(), asyncio.Event()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        if task.id == "t2" and not task.crashes:
            await may_end.wait()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(6)))
    async with crew(bench, app, run=8) as made:
        await made.until(lambda: bench.count("done") == 2)
        other = await bench.daemon("d2")
        bench.expire("d1")
        await other.sessions.reap()
        made.exchanger.close_session()
        for worker in made.workers:
            worker.lose()
        await made.until(lambda: not made.workers[0].is_busy)
        assert ran == ["t0", "t1", "t2"]
        assert await other.work_off() == ["t2", "t3", "t4", "t5"]
        may_end.set()
        await made.daemon.register()
        made.exchanger.open_session()
        await made.stop()


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
        await made.until(lambda: made.dispatcher.measures.lost > 0)
        await made.until(lambda: not made.workers[0].is_busy)
        await made.until(lambda: made.exchanger.held == 0)  # nor is it asking for any
        assert ran == ["t0", "t1"]
        bench.raw.hset(bench.keys("count"), "running_grouped", 0)
        bench.raw.delete(bench.keys("lock", "hot"), bench.keys("runs"))
        bench.raw.zadd(bench.keys("ready"), {"hot": 1})
        await made.stop()
    await bench.close()
