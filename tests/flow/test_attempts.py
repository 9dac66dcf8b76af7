"""An attempt beside others: its time limit, and what its handler leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow import App, Task
from groupflow.flow import handling as module
from groupflow.flow.handling import LATE, STUCK_LOOK, AttemptTimeout
from groupflow.store.settlements import Complete
from tests.deadlines import deadline
from tests.flow.crew import Gate, crew, named
from tests.flow.tasks import task as any_task
from tests.store.bench import Bench, arrival


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_handler_that_ignores_its_limit_keeps_its_claim_while_others_go_on(
    bench: Bench, is_async: bool
) -> None:
    """It ended by itself after all, and its answer counts."""
    app, gate, may_end = App(), Gate(), threading.Event()
    loop = asyncio.get_running_loop()

    async def stubborn(_: Task) -> None:
        while not gate.opened.is_set():
            with suppress(asyncio.CancelledError):
                await gate.passed()

    def hangs(_: Task) -> None:
        loop.call_soon_threadsafe(gate.reached.set)
        assert may_end.wait(deadline())

    app.handler("s", timeout=0.01)(stubborn if is_async else hangs)
    app.handler("t")(lambda _: None)
    await bench.enqueue(named("s", "s"), *(named(f"o-{n}") for n in range(20)))
    async with crew(bench, app, count=2, pool="plain") as made:
        try:
            await gate.until_reached()
            with capture_logs():
                await made.until_settled(20)
            assert "s" not in {each.claim.task.id for each in made.claims.accepted}
            assert [worker.is_busy for worker in made.workers].count(True) == 1
        finally:
            gate.opened.set()
            may_end.set()
        await made.until_settled(21)
        await made.stop()
    assert made.kinds == [Complete] * 21


class Timers:
    """The loop's timers and the clock, both moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.set: list[tuple[float, Callable[[], Any]]] = []
        self.cancelled = 0

    def call_later(self, seconds: float, callback: Callable[[], Any]) -> asyncio.TimerHandle:
        self.set.append((seconds, callback))
        return cast(asyncio.TimerHandle, self)

    def cancel(self) -> None:
        self.cancelled += 1

    def ring(self, late: float) -> None:
        """The only one that was set, so much after its time."""
        [(seconds, callback)] = self.set
        self.set, self.now = [], self.now + seconds + late
        callback()


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_limit_that_is_found_over_late_is_put_off_once(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """The loop stood meanwhile. An attempt that ignores its end is reported again and again."""
    timers, may_end, cut = Timers(), asyncio.Event(), list[bool]()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", timers.call_later)
    monkeypatch.setattr(module, "monotonic", lambda: timers.now)

    async def attempt() -> None:
        limit = AttemptTimeout(any_task(), 30.0)
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                cut.append(limit.is_over)
        limit.lift()

    running = asyncio.create_task(attempt())
    await asyncio.sleep(0)
    assert [seconds for seconds, _ in timers.set] == [30.0]
    if is_late:
        timers.ring(late=5.0)
        await asyncio.sleep(0)
        assert (cut, [seconds for seconds, _ in timers.set]) == ([], [5.0])
    timers.ring(late=LATE)
    await asyncio.sleep(0)
    assert cut == [True]
    with capture_logs() as logs:
        for _ in range(3):
            assert [seconds for seconds, _ in timers.set] == [STUCK_LOOK]
            timers.ring(late=0.0)
    assert [each["ignored_for"] for each in logs] == [STUCK_LOOK, 2 * STUCK_LOOK, 3 * STUCK_LOOK]
    may_end.set()
    await running
    assert (cut, timers.cancelled) == ([True], 1)


# Each attempt has an asyncio task of its own: what handlers leave behind in it stays there.
seen: ContextVar[str] = ContextVar("seen", default="")


async def sets_a_variable(task: Task, _: set[asyncio.Task[Any]]) -> None:
    assert seen.get() == ""
    seen.set(task.id)
    await asyncio.sleep(0)


async def cancels_itself_with_its_last_breath(_: Task, tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.sleep(0)
    cast(asyncio.Task[Any], asyncio.current_task()).cancel()


async def cancels_those_before_it(_: Task, tasks: set[asyncio.Task[Any]]) -> None:
    for each in tasks:
        each.cancel()
    tasks.add(cast(asyncio.Task[Any], asyncio.current_task()))
    await asyncio.sleep(0)


HABITS = [sets_a_variable, cancels_itself_with_its_last_breath, cancels_those_before_it]


@pytest.mark.parametrize("run", [1, 8])
@pytest.mark.parametrize("habit", HABITS)
async def test_what_a_handler_leaves_behind_is_its_attempts_alone(
    bench: Bench, habit: Callable[..., Any], run: int
) -> None:
    app, ran, tasks = App(), list[str](), set[asyncio.Task[Any]]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        await habit(task, tasks)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, count=2, run=run) as made:
        await made.until_done(8)
        await made.stop()
    assert ran == [f"t{n}" for n in range(8)]
    assert {*made.kinds} == {Complete}


async def test_a_handler_that_never_waits_lets_others_have_a_turn(bench: Bench) -> None:
    """Between two attempts of a run, if none of its handlers gives the loop one."""
    app, turns, at = App(), [0], list[int]()

    def count() -> None:
        turns[0] += 1
        asyncio.get_running_loop().call_soon(count)

    @app.handler("t")
    async def handle(_: Task) -> None:
        if not at:
            count()
        at.append(turns[0])

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(8)
        await made.stop()
    assert len(set(at)) == 8
