"""A worker's attempts: what ends them, what is settled, logged and traced of each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


async def test_one_after_another_and_idle_in_between(bench: Bench) -> None:
    app, seen = App(), list[Any]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        current = asyncio.current_task()
        assert current is not None
        seen.append((worker.is_busy, worker.names_of(current)["task"], worker.source))
        assert worker.names_of(made.running[0]) == {}

    async with crew(bench, app, pool="plain") as made:
        [worker] = made.workers
        worker.hand_back()  # it runs none: there is nothing to hand back
        await bench.enqueue(named("a"), named("b"))
        made.exchanger.wake()
        await made.until_settled(2)
        worker.hand_back()
        worker.lose()
        assert (worker.is_busy, worker.source) == (False, None)
        assert worker._attempt is not None
        assert worker.names_of(worker._attempt) == {}
        await bench.enqueue(named("c"))
        made.exchanger.wake()
        await made.until_settled(3)
        await made.stop()
    assert seen == [(True, id_, made.exchanger) for id_ in "abc"]
    assert made.kinds == [Complete] * 3


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


async def test_a_task_that_kills_all_daemons_is_a_dead_letter_and_not_run(bench: Bench) -> None:
    await bench.enqueue(named("b"))
    crasher = await bench.daemon("crasher")
    bench.with_faults = True
    for _ in range(2):
        await crasher.claim_one("plain")
        await crasher.register()
    ran: list[str] = []
    await bench.enqueue(named("c"))
    async with crew(bench, noting(ran), pool="plain", max_crashes=2) as made:
        await made.until_settled(2)
        await made.stop()
    assert made.kinds == [Bury, Complete]
    assert ran == ["c"]


async def test_an_attempt_is_not_begun_without_the_lease(bench: Bench) -> None:
    """It ended between the claim and the beginning, as where another handler blocked the loop."""
    app, ran = App(), list[str]()

    @app.handler("t")
    async def handle(task: Task) -> None:
        ran.append(task.id)
        made.holds_lease = False

    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(4)))
    async with crew(bench, app, count=4) as made:
        await made.until(lambda: {*made.kinds} == {Complete, Release})
    assert len(ran) == 1


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
    """While it waits, hands in, or attends: the daemon must hear of it."""

    async def breaks(*_: Any) -> None:
        raise ZeroDivisionError

    await bench.enqueue(named("a"))
    async with crew(bench, pool="plain", by_hand=False) as made:
        with monkeypatch.context() as broken:
            broken.setattr(made.workers[0], "_attempt_one", breaks)
            with pytest.raises(ZeroDivisionError):
                await made.running[0]
        monkeypatch.setattr(Dispatcher, "next", breaks)
        with pytest.raises(ZeroDivisionError):
            await made.workers[0].run()


async def test_the_daemons_end_cuts_a_handler_off_and_settles_nothing(bench: Bench) -> None:
    """The next daemon hands over what is left."""
    app, gate, cut = App(), Gate(), asyncio.Event()

    @app.handler("t")
    async def handle(_: Task) -> None:
        with suppress(asyncio.CancelledError):
            await gate.passed()
        cut.set()

    await bench.enqueue(named("a"))
    async with crew(bench, app, pool="plain") as made:
        await gate.until_reached()
        made.running[0].cancel()
        async with asyncio.timeout(deadline()):
            await cut.wait()
            await asyncio.wait(made.running)
    assert made.running[0].cancelled()
    assert made.claims.accepted == []
    assert bench.count("running_plain") == 1
