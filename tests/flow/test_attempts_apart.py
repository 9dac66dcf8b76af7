"""Each attempt has a task of its own: what handlers leave behind in it stays there."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from groupflow import App, Task
from groupflow.store.settlements import Release
from tests.flow.hot import crew
from tests.store.bench import Bench, arrival

seen: ContextVar[str] = ContextVar("seen", default="")


@pytest.mark.parametrize("run", [1, 8])
async def test_what_a_handler_sets_is_its_attempts_alone(bench: Bench, run: int) -> None:
    app, found = App(), list[str]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        found.append(seen.get())
        seen.set(task.id)
        await asyncio.sleep(0.001)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, run=run) as made:
        await made.until_done(8)
        await made.stop()
    assert found == [""] * 8


@pytest.mark.parametrize("run", [1, 8])
async def test_a_cancellation_left_behind_reaches_no_other_attempt(bench: Bench, run: int) -> None:
    """A handler cancels its own task with its last breath: that comes to no other attempt."""
    app, ran = App(), list[str]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        await asyncio.sleep(0.001)
        ran.append(task.id)
        current = asyncio.current_task()
        assert current is not None
        current.cancel()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, run=run) as made:
        await made.until_done(8)
        await made.stop()
    assert ran == [f"t{n}" for n in range(8)]
    assert not any(isinstance(each, Release) for each in made.claims.settled)


@pytest.mark.parametrize("run", [1, 8])
async def test_a_cancellation_that_comes_late_ends_nothing(bench: Bench, run: int) -> None:
    """A handler keeps the tasks of attempts, and cancels them once others run."""
    app, ran, tasks = App(), list[str](), set[asyncio.Task[object]]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        for each in tasks:
            each.cancel()
        current = asyncio.current_task()
        assert current is not None
        tasks.add(current)
        await asyncio.sleep(0)
        ran.append(task.id)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, count=2, run=run) as made:
        await made.until_done(8)
        await made.stop()
    assert ran == [f"t{n}" for n in range(8)]
    assert len(tasks) == 8


async def test_who_never_waits_lets_others_have_a_turn(bench: Bench) -> None:
    """Between two attempts of a run, if none of its handlers gives the loop one."""
    app, turns, at = App(), [0], list[int]()

    def count() -> None:
        turns[0] += 1
        asyncio.get_running_loop().call_soon(count)

    @app.handler("t")
    async def handle(task: Task) -> None:
        if not at:
            count()
        at.append(turns[0])

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(8)
        await made.stop()
    assert len(set(at)) == 8
