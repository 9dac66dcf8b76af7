"""Attempts that follow one another in one task: what they share, and what they must not."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from groupflow import App, Task
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Release
from tests.flow.hot import crew
from tests.store.bench import Bench, arrival

seen: ContextVar[str] = ContextVar("seen", default="")


@pytest.mark.parametrize("run", [1, 8])
async def test_attempts_of_a_group_share_a_task(bench: Bench, run: int) -> None:
    app, tasks = App(), list[object]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0.001)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    # The second worker gets nothing: so the first one goes on, however long an exchange takes.
    async with crew(bench, app, count=2, run=run) as made:
        await made.until_done(8)
        await made.stop()
    assert len(set(tasks)) < 8


@pytest.mark.parametrize("run", [1, 8])
async def test_what_a_handler_sets_is_nobody_elses(bench: Bench, run: int) -> None:
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
async def test_a_cancellation_left_behind_is_nobody_elses(bench: Bench, run: int) -> None:
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


async def test_a_cancellation_that_comes_late_ends_no_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody keeps an attempt's task, and cancels it while its slot hops."""
    app, ran = App(), list[str]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, count=2) as made:
        hop = made.claims.hop

        async def cancelled(settlement: Complete) -> Claim | None:
            claim = await hop(settlement)
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await asyncio.sleep(0)
            return claim

        monkeypatch.setattr(made.claims, "hop", cancelled)
        await made.until_done(8)
        await made.stop()
    assert made.claims.hopped > 1
    assert ran == [f"t{n}" for n in range(8)]


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
