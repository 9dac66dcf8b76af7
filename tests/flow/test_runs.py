"""A run: one worker runs tasks of a group one after another, and its settles travel behind."""

from __future__ import annotations

import asyncio

import pytest

from groupflow import App, Task
from groupflow.flow import slots as module
from groupflow.store.settlements import Proceed
from tests.flow.crew import Crew, crew
from tests.store.bench import Bench, arrival


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of runs, which goes on as it is read: else a slow machine ends them."""
    now = [0.0]

    def read() -> float:
        now[0] += module.PACE
        return now[0]

    monkeypatch.setattr(module, "monotonic", read)
    return now


async def _is_told(made: Crew, ran: int) -> None:
    """From a run's second task on, of eight: what is done is told, and answered, before it ends."""
    told = made.claims.told
    if ran % 8 > 1:
        await made.until(lambda: made.claims.told > told and made.exchanger.is_settled)


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


async def test_a_run_that_ends_goes_on_as_a_new_claim(bench: Bench) -> None:
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
    assert sum(made.came()) == 5
    assert made.dispatcher.measures.claimed == 40


async def test_a_run_ends_where_another_group_waits(bench: Bench) -> None:
    """With what it has in hand: one that comes has its turn then."""
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


async def test_a_run_ends_with_its_time(bench: Bench, now: list[float]) -> None:
    ran, app = list[str](), App()

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
    bench: Bench, now: list[float]
) -> None:
    """A reload comes while it goes on; from then on, each claim is of one task."""
    ran, app = list[str](), App()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        now[0] += 1.0
        if task.id == "t9":
            made.exchanger.adopt({})
        await made.until(lambda: made.exchanger.is_settled)  # what is done before is told meanwhile

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(40)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(40)
        await made.stop()
    assert ran == [f"t{n}" for n in range(40)]
    assert sum(made.came()) == 3 + 28  # a run is over in four seconds
    assert not bench.raw.exists(bench.keys("runs"))
