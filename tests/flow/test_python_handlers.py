"""Python functions as handlers: all that they do becomes an outcome, and nothing else gets out."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from groupflow import Advance, App, Dead, Done, Retry, Task
from groupflow.core.outcome import Outcome
from groupflow.flow import handling
from groupflow.flow.handling import KEPT_BYTES, MESSAGE_CHARS, Failed, Runner, traceback_of
from groupflow.flow.python_handlers import PythonRunners
from tests.deadlines import deadline
from tests.flow.tasks import TASK, failure, task

Register = Callable[..., Runner]


@pytest.fixture
def runner_of() -> Iterator[Register]:
    """Registers one function and gives its runner."""
    with ThreadPoolExecutor(2) as threads:

        def register(function: Callable[..., Any], **words: Any) -> Runner:
            app = App()
            app.handler("t", **words)(function)
            runner = PythonRunners(app, threads).find("t")
            assert runner is not None
            return runner

        yield register


def both_ways(work: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The same work as a coroutine function and as a plain one."""

    async def coroutine(task: Task) -> Any:
        return work(task)

    def plain(task: Task) -> Any:
        return work(task)

    return [coroutine, plain]


def raiser(error: BaseException) -> Callable[[Task], Any]:
    def work(task: Task) -> Any:
        raise error

    return work


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no notes")


def wrong(answer: object) -> Failed:
    """What an answer of no kind comes to."""
    what = "a handler, or a middleware, returns None, Done, Retry, Advance or Dead"
    return Failed("TypeError", f"{what}, not {type(answer).__name__}", is_final=True)


CASES: list[tuple[Any, Outcome | Failed]] = [
    (None, Done()),
    (Done(), Done()),
    (Retry(after=3, reason="busy"), Retry(after=3, reason="busy")),
    (Advance("two", {"a": 1}), Advance("two", {"a": 1})),
    (Dead("no"), Dead("no")),
    (ValueError("no such row"), Failed("ValueError", "no such row")),
    (ValueError("x" * 3 * MESSAGE_CHARS), Failed("ValueError", "x" * MESSAGE_CHARS)),
    (ValueError("a file \udcff"), Failed("ValueError", "a file \\udcff")),
    (UnreadableError(), Failed("UnreadableError", "(its text can't be read)")),
    (SystemExit(3), Failed("SystemExit", "3")),
    (KeyboardInterrupt(), Failed("KeyboardInterrupt", "")),
    (asyncio.CancelledError("mine"), Failed("CancelledError", "mine")),
    (TimeoutError("of its own"), Failed("TimeoutError", "of its own")),
    (KeyError("a"), Failed("KeyError", "'a'", is_final=True)),
    (UnicodeError("a"), Failed("UnicodeError", "a", is_final=True)),
    *((odd, wrong(odd)) for odd in (0, True, "done", {"stage": "two"}, Done, Retry)),
]


@pytest.mark.parametrize(("answer", "outcome"), CASES)
async def test_an_answer_or_an_exception_is_the_outcome(
    runner_of: Register, answer: Any, outcome: Outcome | Failed
) -> None:
    """What is of no kind, or an exception after which there is no retry, is final."""
    is_raised = isinstance(answer, BaseException)
    for function in both_ways(raiser(answer) if is_raised else lambda _task: answer):
        runner = runner_of(function, dead_on=(LookupError, UnicodeError))
        assert await runner.handle(task()) == outcome


async def test_a_stop_iteration_in_a_thread_has_failed_too(runner_of: Register) -> None:
    outcome = await failure(runner_of(both_ways(raiser(StopIteration("gone")))[1]))
    assert "StopIteration: gone" in outcome.message


class Contact(BaseModel):
    name: str
    age: int = Field(ge=0)

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        # A validator that looks something up, and isn't careful about it.
        return {"Ada": "Ada Lovelace"}[name]


async def test_a_model_is_parsed_from_the_body(runner_of: Register) -> None:
    got: list[tuple[Task, Contact]] = []

    async def handle(task: Task, contact: Contact) -> None:
        got.append((task, contact))

    fits = replace(TASK, body=b'{"name": "Ada", "age": 36}')
    assert await runner_of(handle, model=Contact).handle(fits) == Done()
    assert got == [(fits, Contact.model_construct(name="Ada Lovelace", age=36))]
    no_row = replace(TASK, body=b'{"name": "ada", "age": 1}')  # its own code raises
    assert await runner_of(handle, model=Contact).handle(no_row) == Failed("KeyError", "'ada'")


UNFIT: list[Any] = [
    (b'{"name": "Ada"}', "age: Field required"),
    (b'{"name": "Ada", "age": -1}', "age: Input should be greater than or equal to 0"),
    (b'{"name": "Ada", "age": "4929-1234"}', "age: "),
    (b"[]", "body: "),
    (b"no json", "body: Invalid JSON"),
    (b"", "body: "),
    (b"\xff", "body: "),
]


@pytest.mark.parametrize(("body", "said"), UNFIT)
async def test_a_body_that_doesnt_fit_is_dead(runner_of: Register, body: bytes, said: str) -> None:
    """The reason keeps the tenant's values to itself."""

    def handle(task: Task, contact: Contact) -> None:
        raise AssertionError("it must not be called")

    outcome = await runner_of(handle, model=Contact).handle(replace(TASK, body=body))
    assert isinstance(outcome, Dead)
    assert outcome.reason.startswith("the body doesn't fit: ")
    assert said in outcome.reason
    assert "4929" not in outcome.reason


@pytest.mark.parametrize("answers", [False, True])
async def test_a_cancelled_coroutine_ends_or_answers(runner_of: Register, answers: bool) -> None:
    began, cleaned = asyncio.Event(), asyncio.Event()

    async def handle(task: Task) -> Done:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not answers:
                raise
        finally:
            cleaned.set()
        return Done()

    running = asyncio.ensure_future(runner_of(handle).handle(task()))
    async with asyncio.timeout(deadline()):
        await began.wait()
        running.cancel()
        await asyncio.wait([running])
    assert cleaned.is_set()
    assert running.cancelled() != answers
    assert not answers or running.result() == Done()


async def test_a_cancelled_thread_is_waited_for_and_its_answer_holds(runner_of: Register) -> None:
    loop, began, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def handle(task: Task) -> Retry:
        loop.call_soon_threadsafe(began.set)
        assert may_end.wait(deadline())
        return Retry(reason="ended by itself")

    running = asyncio.create_task(runner_of(handle).handle(task()))
    async with asyncio.timeout(deadline()):
        await began.wait()
        for _ in range(3):
            running.cancel()
            await asyncio.wait([running], timeout=0)
        assert not running.done()
        may_end.set()
        assert await running == Retry(reason="ended by itself")


request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")


async def test_a_thread_sees_the_context_of_its_attempt(runner_of: Register) -> None:
    seen: list[str] = []

    def handle(task: Task) -> None:
        seen.append(request_id.get())
        request_id.set("inside")

    request_id.set("outside")
    await runner_of(handle).handle(task())
    assert (seen, request_id.get()) == (["outside"], "outside")


async def test_no_thread_no_call(runner_of: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor keeps it for the next free thread, though it said that there is none."""
    gate, called, begun = threading.Event(), list[str](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def plain(task: Task) -> None:
        called.append(task.id)
        loop.call_soon_threadsafe(begun.set)
        gate.wait(deadline())

    runner = runner_of(plain)
    first = asyncio.create_task(runner.handle(task(id="first")))
    await asyncio.wait_for(begun.wait(), deadline())
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", raiser(RuntimeError("can't start new thread")))
        second = await runner.handle(task(id="second"))
    assert second == Failed("RuntimeError", "can't start new thread")
    gate.set()
    assert await first == Done()
    assert await runner.handle(task(id="third")) == Done()  # behind the rest of the queue
    assert called == ["first", "third"]


# Where an attempt failed: what is kept of it.


def price_of(row: dict[str, Any]) -> Any:
    return row["price"]


async def in_a_task_group() -> None:
    async def part() -> None:
        price_of({})

    async with asyncio.TaskGroup() as group:
        group.create_task(part())


def with_a_cause() -> None:
    try:
        price_of({})
    except KeyError as error:
        raise ValueError("no price") from error


RAISED: list[Any] = [
    (lambda: price_of({}), "KeyError: 'price'"),
    (with_a_cause, "ValueError: no price"),
    (in_a_task_group, "+------------------------------------"),
]


@pytest.mark.parametrize(("work", "end"), RAISED)
async def test_a_traceback_begins_at_the_handler_and_ends_where_it_was_raised(
    runner_of: Register, work: Callable[[], Any], end: str
) -> None:
    """With what a task group gathered, and a cause."""

    async def handle(_: Task) -> None:
        if asyncio.iscoroutine(found := work()):
            await found

    def plain(_: Task) -> None:
        asyncio.run(work()) if work is in_a_task_group else work()

    for function in (handle, plain):
        found = await failure(runner_of(function))
        assert "/python_handlers.py" not in found.traceback
        frames = re.findall(r"File .* in (\S+)", found.traceback)
        assert {"price_of", function.__name__} <= {*frames}
        assert "KeyError: 'price'" in found.traceback
        assert found.traceback.endswith(end)
        if end.startswith("KeyError"):
            assert found.traceback.startswith("Traceback (most recent call last):\n")
            assert frames == [function.__name__, "<lambda>", "price_of"]


def raised(error: BaseException, depth: int = 0) -> BaseException:
    """An error that has been raised, so many frames down; no two alike follow each other."""

    def down(left: int) -> None:
        if not left:
            raise error
        if left % 2:
            down(left - 1)
        else:
            down(left - 1)

    with pytest.raises(type(error)) as found:
        down(depth)
    return found.value


LARGE: list[Any] = [
    ValueError("\N{SNOWMAN}" * 100_000),
    ValueError("line\n" * 100_000),
    ValueError("a file named \udcff"),
    ExceptionGroup("many", [ValueError(str(n)) for n in range(500)]),
]


@pytest.mark.parametrize("error", LARGE)
@pytest.mark.parametrize("depth", [0, 300])
def test_it_is_bounded_and_the_innermost_frames_stay(error: BaseException, depth: int) -> None:
    text = traceback_of(raised(error, depth))
    assert 0 < len(text.encode()) <= KEPT_BYTES
    if not isinstance(error, ExceptionGroup):
        assert "raise error" in text
        assert type(error).__name__ in text


def test_a_huge_text_is_not_searched_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else runs in the loop meanwhile."""
    searched = list[int]()

    def mask(text: str) -> str:
        searched.append(len(text))
        return text

    monkeypatch.setattr(handling, "mask_secrets", mask)
    handling.failed(raised(ValueError("a=b " * 100_000)))
    assert max(searched) < 100_000


def test_secrets_are_hidden_before_it_is_cut() -> None:
    text = traceback_of(raised(ValueError("x" * 280 + " https://T0KEN@h/?token=T0KEN")))
    assert "T0K" not in text
