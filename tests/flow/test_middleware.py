"""What surrounds the attempts of Python handlers: middleware, and what log lines say of them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest
import structlog
from pydantic import BaseModel, field_validator

from groupflow import App, CallNext, Dead, Done, Retry, Task
from groupflow.flow.handling import Failed
from groupflow.ops.logs import configure_logging
from groupflow.testing import make_task, run, run_batch
from tests.deadlines import deadline
from tests.flow.crew import crew
from tests.flow.test_python_handlers import Register, runner_of, wrong
from tests.store.bench import Bench, arrival

__all__ = ["runner_of"]


async def returns(given: Any, call_next: CallNext) -> Any:
    return await call_next(given)


async def forgets(given: Any, call_next: CallNext) -> Any:
    await call_next(given)


async def swallows(given: Any, call_next: CallNext) -> Any:
    with suppress(LookupError):
        return await call_next(given)


async def mends(given: Any, call_next: CallNext) -> Any:
    try:
        return await call_next(given)
    except ValueError:
        return Retry(reason="mended")


async def repeats(given: Any, call_next: CallNext) -> Any:
    with suppress(ValueError):
        await call_next(given)
    return await call_next(given)


async def shortens(_: Any, __: CallNext) -> Any: ...


async def refuses(_: Any, __: CallNext) -> Any:
    raise LookupError("not today")


async def babbles(given: Any, call_next: CallNext) -> Any:
    await call_next(given)
    return 5


async def keeps_two(tasks: Any, call_next: CallNext) -> Any:
    return [*await call_next(tasks[:2]), Retry(reason="not now")]


ERROR, FINAL = ValueError("no row"), LookupError("no such tenant")
REFUSED = Failed("LookupError", "not today", is_final=True)
NO_ANSWER = Failed(
    "TypeError", "swallows returned None, but call_next raised: return an outcome, or raise again"
)


# The middleware, what the handler answers or raises, how the attempt ends, how often it was run.
ATTEMPTS: list[Any] = [
    (returns, None, Done(), 1),
    (returns, Dead("no"), Dead("no"), 1),
    (returns, ERROR, Failed("ValueError", "no row"), 1),
    (returns, FINAL, Failed("LookupError", "no such tenant", is_final=True), 1),
    (returns, "done", wrong("done"), 1),
    (returns, asyncio.CancelledError("mine"), Failed("CancelledError", "mine"), 1),
    (forgets, None, Done(), 1),
    (forgets, Retry(reason="busy"), Retry(reason="busy"), 1),
    (swallows, FINAL, NO_ANSWER, 1),
    (mends, ERROR, Retry(reason="mended"), 1),
    (repeats, Dead("twice"), Dead("twice"), 2),
    (repeats, ERROR, Failed("ValueError", "no row"), 2),
    (shortens, Dead("no"), Done(), 0),
    (refuses, None, REFUSED, 0),
    (babbles, None, wrong(5), 1),
]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(("middleware", "answer", "outcome", "runs"), ATTEMPTS)
async def test_it_may_change_how_an_attempt_ends(
    middleware: Any, answer: Any, outcome: Any, runs: int, is_async: bool
) -> None:
    app, ran = App(), list[str]()

    def work(task: Task) -> Any:
        ran.append(task.id)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def coroutine(task: Task) -> Any:
        return work(task)

    app.handler("t", dead_on=(LookupError,))(coroutine if is_async else work)
    assert app.middleware(middleware) is middleware
    assert await run(app, make_task("t")) == outcome
    assert len(ran) == runs


class Row(BaseModel):
    row: int

    @field_validator("row")
    @classmethod
    def _is_known(cls, row: int) -> int:
        return {13: {}}.get(row, {row: row})[row]


GONE = Dead("its row is gone")
UNFIT = Dead("the body doesn't fit: row: Field required")
UNKNOWN = Failed("KeyError", "13", is_final=True)  # its model's own code raises
BATCHES: list[Any] = [
    (returns, None, [Done()] * 3),
    (returns, Retry(), [Retry()]),
    (returns, [None, GONE, None], [Done(), GONE]),
    (forgets, [None, GONE, None], [Done(), GONE]),
    (returns, [None, None, 5], [Done(), Done(), wrong(5)]),
    (returns, ERROR, [Failed("ValueError", "no row")]),
    (swallows, FINAL, [NO_ANSWER]),
    (shortens, GONE, [Done()] * 3),
    (keeps_two, None, [Done(), Done(), Retry(reason="not now")]),
    (keeps_two, [None, GONE], [Done(), GONE]),
    (returns, UNFIT, [Done(), Done(), UNFIT]),
    (returns, UNKNOWN, [Done(), Done(), UNKNOWN]),
]


@pytest.mark.parametrize(("middleware", "answer", "outcomes"), BATCHES)
async def test_a_batch_has_it_once(middleware: Any, answer: Any, outcomes: list[Any]) -> None:
    """With all of the tasks; the rest gives their outcomes, up to the first that isn't done."""
    app, given = App(), list[Any]()
    app.middleware(middleware)

    @app.middleware
    async def sees(tasks: Sequence[Task], call_next: CallNext) -> Any:
        found = await call_next(tasks)
        given.append(found)
        return found

    @app.batch_handler("t", model=Row, dead_on=(KeyError,))
    async def handle(tasks: Sequence[Task], rows: Sequence[Row]) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return None if is_wrong else answer

    is_wrong = answer in (UNFIT, UNKNOWN)
    bodies: list[Any] = [{"row": n} for n in range(3)]
    if is_wrong:
        bodies[2] = {} if answer is UNFIT else {"row": 13}
    assert await run_batch(app, [make_task("t", body) for body in bodies]) == outcomes
    if middleware is returns and answer is not ERROR:
        assert given == [outcomes]


async def test_the_first_is_the_outermost_and_the_body_is_not_parsed_yet() -> None:
    app, told = App(), list[str]()

    @app.middleware
    async def outer(task: Task, call_next: CallNext) -> Any:
        told.append("in")
        outcome = await call_next(replace(task, body=task.body.removeprefix(b"packed:")))
        told.append(f"out {outcome}")
        return outcome

    @app.middleware
    async def inner(task: Task, call_next: CallNext) -> Any:
        told.append(task.body.decode())
        return await call_next(task)

    @app.handler("t", model=Row)
    async def handle(task: Task, row: Row) -> None:
        told.append(f"row {row.row}")

    assert await run(app, make_task("t", b'packed:{"row": 3}')) == Done()
    assert told == ["in", '{"row": 3}', "row 3", f"out {Done()}"]
    assert await run(app, make_task("t")) == UNFIT
    assert told[4:] == ["in", "{}", f"out {UNFIT}"]


@pytest.mark.parametrize("seconds", [0.0, 0.05], ids=["in time", "a thread over its time"])
async def test_a_time_limit_is_for_all_of_it(seconds: float) -> None:
    app, ended = App(), list[type[BaseException]]()

    @app.middleware
    async def waits(task: Task, call_next: CallNext) -> Any:
        try:
            await call_next(task)
            await asyncio.Event().wait()
        except BaseException as error:
            ended.append(type(error))
            raise

    app.handler("t", timeout=0.01)(lambda _: time.sleep(seconds))
    assert await run(app, make_task("t")) == Failed("TimeoutError", "it ran over its 0.01 s")
    assert ended == [asyncio.CancelledError]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("is_async", [True, False])
async def test_all_that_is_logged_says_whose_attempt_it_is(
    bench: Bench, capsys: pytest.CaptureFixture[str], is_async: bool, batch: int
) -> None:
    """Through any logger, in threads too. The daemon's own lines say it of each task of a batch."""
    configure_logging("debug", "json")
    app = App()

    def work(given: Any) -> None:
        structlog.get_logger("of.the.app").info("mine", fence=0)
        logging.getLogger("of.a.library").info("its")
        (given if isinstance(given, Task) else given[0]).log.info("bound")

    async def coroutine(given: Any) -> None:
        work(given)

    @app.middleware
    async def logs(given: Any, call_next: CallNext) -> None:
        structlog.get_logger().info("around")
        await call_next(given)

    register = app.handler("t") if batch == 1 else app.batch_handler("t")
    register(coroutine if is_async else work)
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(2)))
    async with crew(bench, app, batch=batch) as made:
        await made.finish(2)
    lines = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    for n in range(2 // batch):
        whose = {"task": f"t{n}", "group": "hot", "attempt": 1}
        theirs = [each for each in lines if each.items() >= whose.items()]
        theirs = [each for each in theirs if each["event"] != "task.settled"]
        found = [(each["event"], each.keys() - whose.keys()) for each in theirs]
        usual = {"event", "level", "timestamp"}
        claimed = usual | {"type", "fence", "slot", "crashes"}
        expected = [("task.claimed", claimed)] * (not n or batch == 1)
        expected += [("around", usual), ("mine", usual | {"fence"})]
        expected += [("its", usual | {"logger"}), ("bound", usual | {"fence"})]
        assert found == expected
    settled = [each for each in lines if each["event"] == "task.settled"]
    assert [(each["task"], each["attempt"]) for each in settled] == [("t0", 1), ("t1", 1)]


async def test_the_warning_of_a_thread_is_the_daemons(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    app, may_end = App(), threading.Event()

    @app.handler("t", timeout=0.01)
    def hangs(_: Task) -> None:
        assert may_end.wait(deadline())

    running = asyncio.create_task(run(app, make_task("t", group="g")))
    said = ""
    async with asyncio.timeout(deadline()):
        while not (said := said + capsys.readouterr().err):
            await asyncio.sleep(0)
    may_end.set()
    assert await running == Done()
    assert orjson.loads(said).keys() == {"event", "level", "timestamp", "task", "type"}


async def test_an_attempt_that_python_ends_elsewhere(runner_of: Register) -> None:
    """In another context than it began in: nothing is told of it."""

    async def waits(_: Task) -> None:
        await asyncio.Event().wait()

    attempt = runner_of(waits).handle(make_task("t"))
    contextvars.copy_context().run(attempt.send, None)
    attempt.close()
