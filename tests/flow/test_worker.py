"""A worker's attempts: what ends them and is told of them, and what handlers leave behind."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import time
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from groupflow import App, Dead, Done, Task
from groupflow.core.outcome import Outcome
from groupflow.core.tracing import Attempt
from groupflow.flow import handling as module
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.handling import LATE, STUCK_LOOK, AttemptTimeout, Failed
from groupflow.flow.python_handlers import PythonRunner
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.flow.workforce import Holding, WorkerPool
from groupflow.store.settlements import Bury, Complete, Defer, Release, Retry
from tests.deadlines import deadline
from tests.flow.crew import Gate, crew, named
from tests.flow.tasks import task as any_task
from tests.store.bench import Bench, arrival
from tests.store.task_state import found as found_in
from tests.store.task_state import pass_time
from tests.turns import CountedTurns, turns


class Traced:
    """Tracing that notes how attempts ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str]] = []

    @contextmanager
    def processing(self, task: Task) -> Iterator[Attempt]:
        yield self

    def ended(self, outcome: str, error: str = "") -> None:
        self.ends.append((outcome, error))


async def test_an_attempt_handed_back_before_its_first_step(bench: Bench) -> None:
    """A worker cancelled then would lose its slot."""

    async def handle(_: Task) -> None:
        if len(made.ran) == 1:
            # In the next turn, the next attempt of the run is made, and has not begun.
            asyncio.get_running_loop().call_soon(made.workers[0].hand_back)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(2)))
    async with crew(bench, handle, run=8) as made:
        await made.finish(2)
    assert made.kinds == [Complete, Release, Complete]
    assert made.ran == ["t0", "t1"]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_an_attempt_that_is_cut_off(bench: Bench, is_lost: bool) -> None:
    """Its task runs again; where the claim was lost, nothing is written, and it is one crash on."""
    gate, ran, traced = Gate(), list[int](), Traced()

    async def handle(task: Task) -> None:
        ran.append(task.crashes)
        if len(ran) == 1:
            await gate.passed()

    await bench.enqueue(named("a"))
    async with crew(bench, handle, pool="plain", tracing=traced) as made:
        await gate.until_reached()
        if is_lost:
            await made.daemon.register()  # a new session: what the old one held is handed over
            gate.opened.set()  # the attempt could end well now
            made.workers[0].lose()
            assert made.prefetch._attempts == 0, "it says nothing of how long handlers take"
        else:
            made.workers[0].hand_back()
        await made.end(1 if is_lost else 2)
    assert made.kinds == ([Complete] if is_lost else [Release, Complete])
    assert ran == [0, int(is_lost)]
    assert traced.ends == [("lost", "ClaimLost") if is_lost else ("release", ""), ("complete", "")]


async def test_how_attempts_end_is_settled_traced_and_logged(bench: Bench) -> None:
    """Each failed one with where it failed, how long it took, and as whose attempt."""
    app, traced = App(), Traced()
    answers: dict[str, Outcome] = {"dies": Dead("over"), "done": Done()}

    @app.handler("t", max_attempts=2)
    async def handle(task: Task) -> Outcome:
        return answers[task.id]

    @app.handler("late", timeout=0.001)
    async def late(_: Task) -> None:
        await asyncio.Event().wait()

    ids = ["done", "dies", "raises"]
    await bench.enqueue(*map(named, ids), named("alien", "u"), named("slow", "late"))
    with capture_logs() as logs:
        async with crew(bench, app, pool="plain", tracing=traced) as made:
            await made.end(5)
    assert made.kinds == [Complete, Bury, Retry, Bury, Retry]
    assert traced.ends == [
        ("complete", ""),
        ("bury", "Dead"),
        ("retry", "KeyError"),
        ("bury", "Dead"),
        ("retry", "TimeoutError"),
    ]
    lines = [each for each in logs if each["event"] in ("task.settled", "task.buried")]
    assert [(each["task"], each.get("reason", each.get("message"))) for each in lines] == [
        ("done", None),
        ("dies", "over"),
        ("raises", "'raises'"),
        ("alien", "no handler for type 'u'"),
        ("slow", "it ran over its 0.001 s"),
    ]
    assert [each["attempt"] for each in lines] == [1] * 5
    assert "in handle" in lines[2]["exception"]
    assert "in late" in lines[4]["exception"]
    noted = cast(Retry, made.claims.accepted[2]).errors[-1]
    assert noted["daemon"] == "d1"
    assert noted["seconds"] >= 0
    assert abs(noted["at"] - time()) < deadline()
    assert sum(made.dispatcher.measures.types.of("t").handling.counts) == 4  # no alien


def test_a_reload_of_the_log_s_level_is_heeded() -> None:
    """At once, by the workers that are there."""
    before, rules = structlog.get_config(), Rules(cast(Any, None), cast(Any, None), 3)
    try:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
        pool = WorkerPool("plain", Dispatcher(), [], rules=rules, size=1)
        assert not pool.workers[0]._tells_all
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
        pool.adopt(rules)
        assert pool.workers[0]._tells_all
    finally:
        structlog.configure(**before)


ENDS: list[Any] = [
    (22, 19, "3 daemons died while they ran it"),
    (21, 19, None),
    (20, 20, "20 daemons stopped, or lost their leases, while they ran it"),
    (19, 19, None),
]


@pytest.mark.parametrize(("crashes", "lost", "reason"), ENDS)
async def test_lost_leases_bury(bench: Bench, crashes: int, lost: int, reason: str | None) -> None:
    async with crew(bench) as made:
        of = any_task(crashes=crashes, lost_leases=lost)
        assert made.workers[0]._reason_to_bury(of) == reason


async def test_a_runner_may_raise(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It promises not to; what a library raises through it must not end the daemon."""
    sound = PythonRunner.handle

    async def handle_or_raise(runner: PythonRunner, task: Task) -> Outcome | Failed:
        if task.id == "a":
            raise ssl.SSLError(1, "alert certificate required")
        return await sound(runner, task)

    monkeypatch.setattr(PythonRunner, "handle", handle_or_raise)
    await bench.enqueue(named("a"), named("b"))
    async with crew(bench, pool="plain") as made:
        await made.end(2)
    assert made.kinds == [Retry, Complete]
    assert cast(Retry, made.claims.accepted[0]).errors[-1]["error"] == "SSLError"


class _Broken:
    """What an application may answer: it can't be compared."""

    def __eq__(self, _other: object) -> bool:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]


async def test_no_answer_ends_the_daemon(bench: Bench) -> None:
    async def handle(task: Task) -> Any:
        return Done(then=cast(Any, _Broken())) if task.id == "a" else None

    await bench.enqueue(named("a"), named("b"))
    async with crew(bench, handle, pool="plain") as made:
        await made.end(2)
    assert {*made.kinds} == {Bury, Complete}


async def test_an_unforeseen_error_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon must hear of it."""

    def breaks(*_: Any) -> None:
        raise ZeroDivisionError

    await bench.enqueue(named("a"))
    async with crew(bench, pool="plain", by_hand=True) as made:
        monkeypatch.setattr(Dispatcher, "hand_in", breaks)
        working = asyncio.create_task(LocalWorker("w-0", made.dispatcher, made.rules).run())
        await turns()
        await made.exchanger.run_once()
        with pytest.raises(ZeroDivisionError):
            await working


@pytest.mark.parametrize("is_async", [True, False])
async def test_who_ignores_its_limit_keeps_its_claim(bench: Bench, is_async: bool) -> None:
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
        await made.end(21)
    assert made.kinds == [Complete] * 21


class Timer:
    """The loop's timer and the clock, both moved by hand."""

    def __init__(self) -> None:
        self.now, self.seconds = 1000.0, 0.0

    def call_later(self, seconds: float, callback: Callable[[], Any]) -> asyncio.TimerHandle:
        self.seconds, self.callback = seconds, callback
        return cast(asyncio.TimerHandle, self)

    def cancel(self) -> None:
        self.seconds = 0.0

    async def ring(self, late: float) -> None:
        """So much after its time."""
        self.now += self.seconds + late
        self.callback()
        await turns()


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_late_limit_is_put_off_once(monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    """The loop stood meanwhile. An attempt that ignores its end is reported again and again."""
    timer, may_end, cut = Timer(), asyncio.Event(), list[bool]()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", timer.call_later)
    monkeypatch.setattr(module, "monotonic", lambda: timer.now)

    async def attempt() -> None:
        limit = AttemptTimeout(any_task(), 30.0)
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                cut.append(limit.is_over)
        limit.lift()

    running = asyncio.create_task(attempt())
    await turns()
    assert timer.seconds == 30.0
    if is_late:
        await timer.ring(late=5.0)
        assert (cut, timer.seconds) == ([], 5.0)
    await timer.ring(late=LATE)
    assert (cut, timer.seconds) == ([True], STUCK_LOOK)
    with capture_logs() as logs:
        for _ in range(3):
            await timer.ring(late=0.0)
    assert [each["ignored_for"] for each in logs] == [STUCK_LOOK, 2 * STUCK_LOOK, 3 * STUCK_LOOK]
    may_end.set()
    await running
    assert (cut, timer.seconds) == ([True], 0.0)


# Each attempt has an asyncio task of its own: what handlers leave behind in it stays there.
seen: ContextVar[str] = ContextVar("seen", default="")


async def sets_a_variable(task: Task, _: set[asyncio.Task[Any]]) -> None:
    assert seen.get() == ""
    seen.set(task.id)
    await turns()


async def cancels_itself_with_its_last_breath(_: Task, tasks: set[asyncio.Task[Any]]) -> None:
    await turns()
    cast(asyncio.Task[Any], asyncio.current_task()).cancel()


async def cancels_those_before_it(_: Task, tasks: set[asyncio.Task[Any]]) -> None:
    for each in tasks:
        each.cancel()
    tasks.add(cast(asyncio.Task[Any], asyncio.current_task()))
    await turns()


HABITS = [sets_a_variable, cancels_itself_with_its_last_breath, cancels_those_before_it]


@pytest.mark.parametrize("run", [1, 8])
@pytest.mark.parametrize("habit", HABITS)
async def test_what_handlers_leave(bench: Bench, habit: Callable[..., Any], run: int) -> None:
    tasks = set[asyncio.Task[Any]]()

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, lambda task: habit(task, tasks), count=2, run=run) as made:
        await made.finish(8)
    assert made.ran == [f"t{n}" for n in range(8)]
    assert {*made.kinds} == {Complete}


async def test_a_handler_that_never_waits_lets_others_have_a_turn(bench: Bench) -> None:
    """Between two attempts of a run, if none of its handlers gives the loop one."""
    counted, at = CountedTurns(), list[int]()

    async def handle(_: Task) -> None:
        at.append(counted.number)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(8)))
    async with crew(bench, handle, run=8) as made:
        await made.finish(8)
    assert len(set(at)) == 8


# Of a type that the daemon has no handler for.


def test_a_server_that_may_have_lost_what_a_daemon_knows_is_told_again() -> None:
    told = list[str]()
    Holding({}, list, lambda: told.append("again")).session_continued()
    assert told == ["again"]


async def test_tasks_of_unknown_types_wait_and_are_dead_later(bench: Bench) -> None:
    """The log says it once a type, and each death; neither is a handler's attempt."""
    ids = ["one", "two"]
    await bench.enqueue(*(named(id_, "u") for id_ in ids), named("known"))
    with capture_logs() as logs:
        async with crew(bench, pool="plain", unknown_for=30.0) as made:
            await made.until_settled(3)
            assert [(await found_in(bench, id_)).state for id_ in ids] == ["delayed"] * 2
            clock = bench.server_time() - 30_000_000
            bench.raw.zadd(bench.keys("unknown"), {"u": clock})
            await pass_time(bench)
            made.exchanger.wake()
            await made.end(5)
    assert made.kinds == [Defer, Defer, Complete, Defer, Defer]
    lines = [each for each in logs if each["event"] == "type.unknown"]
    assert [(each["type"], each["task"], each["unknown_for"]) for each in lines] == [
        ("u", "one", 30.0)
    ]
    reason = "no daemon has known its type 'u' for 30 s"
    dead = [await found_in(bench, id_) for id_ in ids]
    assert [(each.state, each.reason, each.attempt) for each in dead] == [("dead", reason, 1)] * 2
    buried = [(e["task"], e["reason"]) for e in logs if e["event"] == "task.buried"]
    assert buried == [(id_, reason) for id_ in ids]
    settled = made.dispatcher.measures.types.of("u").settled
    assert (settled["defer"], settled["bury"]) == (2, 2)
