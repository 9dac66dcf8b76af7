"""Where an attempt failed: what is kept of it, and what a stranger's exception can't do to that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from groupflow import App, Task
from groupflow.flow.handling import KEPT_BYTES, Failed, failed, traceback_of
from groupflow.flow.python_handlers import PythonRunners
from tests.flow.tasks import task


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


@pytest.mark.parametrize(
    ("work", "end"),
    [
        (lambda: price_of({}), "KeyError: 'price'"),
        (with_a_cause, "ValueError: no price"),
        (in_a_task_group, "+------------------------------------"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_it_begins_at_the_handler_and_ends_where_it_was_raised(
    work: Callable[[], Any], end: str, is_async: bool
) -> None:
    """With what a task group gathered, and a cause."""
    app = App()

    async def handle(_: Task) -> None:
        if asyncio.iscoroutine(found := work()):
            await found

    def plain(_: Task) -> None:
        asyncio.run(work()) if work is in_a_task_group else work()

    app.handler("t")(handle if is_async else plain)
    with ThreadPoolExecutor(1) as threads:
        runner = PythonRunners(app, threads).find("t")
        assert runner is not None
        found = await runner.handle(task())
    assert isinstance(found, Failed)
    assert "python_handlers.py" not in found.traceback.replace("test_python", "")
    frames = [
        line.rpartition(" in ")[2]
        for line in found.traceback.splitlines()
        if line.lstrip(" |").startswith("File")
    ]
    assert "price_of" in frames
    assert ("handle" if is_async else "plain") in frames
    assert "KeyError: 'price'" in found.traceback
    assert found.traceback.endswith(end)
    if end.startswith("KeyError"):
        assert found.traceback.startswith("Traceback (most recent call last):\n")
        assert frames == ["handle" if is_async else "plain", "<lambda>", "price_of"]


def raised(error: BaseException, depth: int = 0) -> BaseException:
    """An error that has been raised, so many frames down."""

    def down(left: int) -> None:
        if not left:
            raise error
        (down if left % 2 else other)(left - 1)

    def other(left: int) -> None:
        (down if left % 2 else other)(left - 1)

    try:
        down(depth)
    except BaseException as found:
        return found
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("\N{SNOWMAN}" * 100_000),
        ValueError("line\n" * 100_000),
        ValueError("a file named \udcff"),
        ExceptionGroup("many", [ValueError(str(n)) for n in range(500)]),
    ],
)
@pytest.mark.parametrize("depth", [0, 300])
def test_it_is_bounded_and_the_innermost_frames_stay(error: BaseException, depth: int) -> None:
    text = traceback_of(raised(error, depth))
    assert 0 < len(text.encode()) <= KEPT_BYTES
    if not isinstance(error, ExceptionGroup):
        assert "raise error" in text
        assert type(error).__name__ in text


def test_secrets_are_hidden_before_it_is_cut() -> None:
    text = traceback_of(raised(ValueError("x" * 280 + " https://T0KEN@h/?token=T0KEN")))
    assert "T0K" not in text


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no notes")


def test_an_exception_that_cant_be_shown_is_a_failure_all_the_same() -> None:
    found = failed(raised(Hostile()))
    assert (found.error, found.message) == ("Hostile", "(its text can't be read)")


def test_what_was_never_raised_has_none() -> None:
    assert not failed(ValueError("no")).traceback
