"""What a daemon does with tasks that are to be cancelled: running, in a batch, not begun.

A coroutine, a thread, a command: each ends in its own way. Of URLs: `test_http_handlers`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupflow import Advance, App, Dead, Done, Retry, Task
from groupflow.core.limits import Debounce
from groupflow.flow import exchange, exec_handlers
from groupflow.flow.exchange import CANCELS_KEPT
from groupflow.flow.workforce import Holding
from groupflow.operate.tasks import Tasks
from groupflow.store.settlements import Complete, Release
from tests.deadlines import deadline, until
from tests.flow.crew import Crew, Gate, Work, crew
from tests.flow.tasks import is_alive, shell
from tests.store.bench import Bench, arrival
from tests.store.task_state import found

Then = Callable[[], Any]
NEWEST = Debounce(0.0, 0.0, running=60.0)


async def cancel(made: Crew, *ids: str, verdict: str = "requested") -> None:
    """An operator cancels tasks, and the daemon hears of it."""
    for id_ in ids:
        assert await Tasks(made.bench.namespace).cancel(id_, "ops") == verdict
    hear(made, *ids)


def only_first(gate: Gate) -> Work:
    """Work that waits at a gate for the first task."""

    async def work(task: Task) -> None:
        if task.id == "t0":
            await gate.passed()

    return work


def hear(made: Crew, *ids: str) -> None:
    """The daemon hears that tasks are to be cancelled."""
    holding = Holding({"grouped": made.exchanger}, lambda: made.workers, lambda: None)
    holding.cancel({*ids})


def told_of(logs: Sequence[Any], id_: str) -> list[str]:
    """What the log says of a task, but for what only debugging asks for."""
    return [e["event"] for e in logs if e.get("task") == id_ and e["log_level"] != "debug"]


async def state_of(bench: Bench, id_: str) -> str:
    return (await found(bench, id_)).state


def _raise() -> None:
    raise ValueError("it failed")


@pytest.mark.parametrize(
    ("then", "state"),
    [
        (None, "cancelled"),
        (lambda: Retry(0.0), "cancelled"),
        (lambda: Advance("two"), "cancelled"),
        (_raise, "cancelled"),
        (lambda: Dead("no such file"), "dead"),
        (lambda: None, "done"),
    ],
    ids=["cancelled", "retry", "advance", "raises", "dead", "done"],
)
async def test_a_coroutine_is_cancelled(bench: Bench, then: Then | None, state: str) -> None:
    """What it makes of that stands if it is done or dead; the next of its group goes on after.

    It has no attempt left, and isn't dead of that. One line of the log tells its end.
    """
    app, gate, ran = App(), Gate(), list[str]()

    @app.handler("t", max_attempts=1)
    async def handle(task: Task) -> Any:
        ran.append(task.id)
        if task.id == "t1":
            return None
        try:
            await gate.passed()
        except asyncio.CancelledError:
            assert task.cancelled
            if then is None:
                raise
            return then()

    await bench.enqueue(arrival("t0", "g"), arrival("t1", "g"))
    with capture_logs() as logs:
        async with crew(bench, app) as made:
            await gate.until_reached()
            await cancel(made, "t0")
            await made.end(2)
    assert (ran, await state_of(bench, "t0")) == (["t0", "t1"], state)
    lines = {"cancelled": ["task.cancelled"], "dead": ["task.buried"], "done": []}
    assert told_of(logs, "t0") == lines[state]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_thread_holds_its_group_until_it_ends(bench: Bench, fails: bool) -> None:
    """It may look whether it is to be cancelled; it has one attempt left, or none."""
    app, begun, ends, seen = App(), threading.Event(), threading.Event(), list[bool]()

    @app.handler("t", max_attempts=1)
    def handle(task: Task) -> None:
        begun.set()
        assert ends.wait(deadline())
        seen.append(task.cancelled)
        if fails:
            raise ValueError("stopped")

    await bench.enqueue(arrival("t0", "g"))
    async with crew(bench, app) as made:
        await asyncio.to_thread(begun.wait, deadline())
        await cancel(made, "t0")
        assert await state_of(bench, "t0") == "running"
        ends.set()
        await made.end(1)
    assert (seen, await state_of(bench, "t0")) == ([True], "cancelled" if fails else "done")


@pytest.mark.parametrize(
    ("ids", "answers", "states"),
    [
        (["t1"], False, ["done", "done"]),
        (["t0", "t1"], False, ["cancelled", "cancelled"]),
        (["t0", "t1"], True, ["done", "cancelled"]),
    ],
)
async def test_a_batch_is_cancelled_only_as_a_whole(
    bench: Bench, ids: list[str], answers: bool, states: list[str]
) -> None:
    """What it answers then holds for those that are done; none of the others is dead."""
    app, gate, seen = App(), Gate(), list[bool]()

    @app.batch_handler("t", max_attempts=1)
    async def handle(tasks: Sequence[Task]) -> Any:
        try:
            await gate.passed()
        except asyncio.CancelledError:
            if not answers:
                raise
            return [Done(), Retry()]
        finally:
            seen.extend(task.cancelled for task in tasks)

    await bench.enqueue(arrival("t0", "g"), arrival("t1", "g"))
    async with crew(bench, app, batch=2) as made:
        await gate.until_reached()
        await cancel(made, *ids)
        gate.opened.set()
        await made.until(lambda: not bench.raw.exists(bench.keys("cancels")))
        await made.stop()
    assert seen == [id_ in ids for id_ in ("t0", "t1")]
    assert [await state_of(bench, id_) for id_ in ("t0", "t1")] == states


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_command_has_time_to_end(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stubborn: bool
) -> None:
    """It gets SIGTERM, and longer until SIGKILL than at a stop, however often it is cancelled."""
    monkeypatch.setattr(exec_handlers, "KILL_AFTER", 0.0)
    if is_stubborn:
        monkeypatch.setattr(exec_handlers, "KILL_CANCELLED_AFTER", 0.1)
    asked, tidied, begun = tmp_path / "asked", tmp_path / "tidied", tmp_path / "begun"
    tidy = "" if is_stubborn else f"echo > {asked}; sleep 0.5; echo > {tidied}; exit 0"
    script = f"trap '{tidy}' TERM; echo $$ > {begun}; while :; do sleep 0.05; done"
    await bench.enqueue(arrival("t0", "g"))
    async with crew(bench, App()) as made:
        for worker in made.workers:
            found = SimpleNamespace(find=lambda _: shell(script))
            worker.rules = replace(made.rules, runners=found)
        await until(lambda: begun.exists() and begun.read_text() != "")
        await cancel(made, "t0")
        if not is_stubborn:
            await until(asked.exists)
            await cancel(made, "t0")  # each renewal says so again
        await made.end(1)
    assert (tidied.exists(), await state_of(bench, "t0")) == (not is_stubborn, "cancelled")
    await until(lambda: not is_alive(int(begun.read_text())))


async def test_what_has_not_begun_does_not_begin(bench: Bench) -> None:
    """The rest of a run goes back to its lane, and the next claim passes over it."""
    gate = Gate()

    await bench.enqueue(*(arrival(f"t{n}", "g") for n in range(4)))
    with capture_logs() as logs:
        async with crew(bench, only_first(gate), run=8) as made:
            await gate.until_reached()
            await cancel(made, "t2")
            gate.opened.set()
            await made.finish(3)
    assert (made.ran, await state_of(bench, "t2")) == (["t0", "t1", "t3"], "cancelled")
    assert told_of(logs, "t2") == ["task.cancelled"]
    assert [each.claim.task.id for each in made.claims.accepted if isinstance(each, Release)] == [
        "t2"
    ]


async def test_what_runs_makes_way_for_a_newer_one(bench: Bench) -> None:
    """It is counted as cancelled, and as superseded."""
    gate = Gate()

    updates = [replace(arrival(f"t{n}", "g"), debounce=NEWEST) for n in range(2)]
    await bench.enqueue(updates[0])
    async with crew(bench, only_first(gate)) as made:
        await gate.until_reached()
        await bench.enqueue(updates[1])
        hear(made, "t0")
        await made.end(2)
    assert (made.ran, await state_of(bench, "t0")) == (["t0", "t1"], "superseded")
    assert made.dispatcher.measures.superseded == 1
    settled = made.dispatcher.measures.types.of("t").settled
    assert (settled["cancel"], settled["complete"], settled["release"]) == (1, 1, 0)


async def test_a_request_that_the_store_forgot(bench: Bench) -> None:
    """The claim goes back once; it is known no more, so the next claim runs."""
    await bench.enqueue(arrival("t0", "g"))
    async with crew(bench) as made:
        made.exchanger.cancel({"t0"})
        await made.finish(1)
    assert [type(each) for each in made.claims.accepted] == [Release, Complete]


async def test_what_was_heard_long_ago_is_forgotten(bench: Bench, monkeypatch: Any) -> None:
    """Those heard of again count from then on; a request costs nothing for those before it."""
    async with crew(bench, by_hand=True) as made:
        for at, ids in ((0.0, {"a", "b"}), (CANCELS_KEPT - 1, {"a"}), (CANCELS_KEPT + 1, {"c"})):
            monkeypatch.setattr(exchange, "monotonic", lambda at=at: at)
            made.exchanger.cancel(ids)
        assert [*made.exchanger.cancels] == ["a", "c"]
