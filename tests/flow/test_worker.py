"""A worker's attempts: what ends them, what is settled, logged and traced of each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from groupflow import App, Dead, Done, Task
from groupflow.core.outcome import Outcome
from groupflow.core.tracing import Attempt
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.handling import Failed
from groupflow.flow.python_handlers import PythonRunner
from groupflow.flow.worker import LocalWorker
from groupflow.store.settlements import Bury, Complete, Release, Retry
from tests.deadlines import deadline
from tests.flow.crew import Gate, crew, named, noting
from tests.flow.tasks import task as any_task
from tests.store.bench import Bench, arrival


class Traced:
    """Tracing that notes how attempts ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str]] = []

    @contextmanager
    def processing(self, task: Task) -> Iterator[Attempt]:
        yield self

    def ended(self, outcome: str, error: str = "") -> None:
        self.ends.append((outcome, error))


async def test_an_attempt_handed_back_before_its_first_step_is_still_handed_in(
    bench: Bench,
) -> None:
    """A worker cancelled then would lose its slot."""
    app, ran = App(), list[str]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        if len(ran) == 1:
            # Two turns on, the next attempt of the run is made, and has not begun.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, made.workers[0].hand_back)

    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(2)))
    async with crew(bench, app, run=8) as made:
        await made.until_done(2)
        await made.stop()
    assert made.kinds == [Complete, Release, Complete]
    assert ran == ["t0", "t1"]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_handler_that_is_cut_off(bench: Bench, is_lost: bool) -> None:
    """Its task runs again; where the claim was lost, nothing is written, and it is one crash on.

    It says nothing of how long handlers take.
    """
    app, gate, ran, traced = App(), Gate(), list[tuple[str, int]](), Traced()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append((task.id, task.crashes))
        if len(ran) == 1:
            await gate.passed()

    await bench.enqueue(named("a"), named("b"))
    async with crew(bench, app, pool="plain", tracing=traced) as made:
        await gate.until_reached()
        if is_lost:
            await made.daemon.register()  # a new session: what the old one held is handed over
            gate.opened.set()  # the attempt could end well now
            made.workers[0].lose()
            assert made.prefetch._attempts == 0
        else:
            made.workers[0].hand_back()
        await made.until_settled(2 + (not is_lost))
        await made.stop()
    assert made.kinds == [*([] if is_lost else [Release]), Complete, Complete]
    assert traced.ends[0] == (("lost", "ClaimLost") if is_lost else ("release", ""))
    assert ran == [("a", 0), ("a", int(is_lost)), ("b", 0)]


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
            await made.until_settled(5)
            await made.stop()
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
    assert [each.get("attempt") for each in lines] == [None, 1, 1, 1, 1]
    assert "in handle" in lines[2]["exception"]
    assert "in late" in lines[4]["exception"]
    noted = cast(Retry, made.claims.accepted[2]).errors[-1]
    assert noted["daemon"] == "d1"
    assert noted["seconds"] >= 0
    assert abs(noted["at"] - time()) < deadline()
    assert sum(made.dispatcher.measures.types.of("t").handling.counts) == 4  # no alien


@pytest.mark.parametrize(
    ("crashes", "lost", "reason"),
    [
        (3, 0, "3 daemons died while they ran it"),
        (2, 0, None),
        (22, 19, "3 daemons died while they ran it"),
        (21, 19, None),
        (20, 20, "20 leases were lost while it ran, by daemons that aren't known to have died"),
        (19, 19, None),
    ],
)
async def test_lost_leases_bury_apart_from_deaths(
    bench: Bench, crashes: int, lost: int, reason: str | None
) -> None:
    async with crew(bench) as made:
        of = any_task(crashes=crashes, lost_leases=lost)
        assert made.workers[0]._reason_to_bury(of) == reason


async def test_a_runner_that_raises_ends_its_attempt_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It promises not to; what a library raises through it must not end the daemon."""
    sound = PythonRunner.handle

    async def handle_or_raise(runner: PythonRunner, task: Task) -> Outcome | Failed:
        if task.id == "a":
            raise ssl.SSLError(1, "alert certificate required")
        return await sound(runner, task)

    monkeypatch.setattr(PythonRunner, "handle", handle_or_raise)
    await bench.enqueue(named("a"), named("b"))
    async with crew(bench, noting([]), pool="plain") as made:
        await made.until_settled(2)
        await made.stop()
    assert made.kinds == [Retry, Complete]
    assert cast(Retry, made.claims.accepted[0]).errors[-1]["error"] == "SSLError"


async def test_an_unforeseen_error_ends_the_worker_and_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon must hear of it."""

    async def breaks(*_: Any) -> None:
        raise ZeroDivisionError

    async with crew(bench, pool="plain", by_hand=True) as made:
        monkeypatch.setattr(Dispatcher, "next", breaks)
        with pytest.raises(ZeroDivisionError):
            await LocalWorker("w-0", made.dispatcher, cast(Any, None), None).run()
