"""The application: what may be registered, what is refused, and what is found again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from groupflow import App, Done, Task
from groupflow.core.app import Handler
from groupflow.core.policy import RetryOverride
from groupflow.flow.python_handlers import PythonRunners


class Contact(BaseModel):
    name: str


def found(app: App, type_: str = "t") -> Handler:
    return {each.type: each for each in app.handlers}[type_]


def test_handlers_are_found_by_their_types_with_what_the_decorator_says() -> None:
    app, facts = App(), {"timeout": 1.5, "dead_on": (KeyError,), "model": Contact}

    @app.handler("t", max_attempts=2, interval=-3, jitter=0.5, **facts)  # type: ignore[arg-type]
    def handle(task: Task, contact: Contact) -> Done:
        return Done()

    override = RetryOverride(max_attempts=2, interval=-3, jitter=0.5)
    assert found(app) == Handler("t", handle, False, retry=override, **facts)  # type: ignore[arg-type]
    for type_ in ("b", "a", "c"):
        assert app.handler(type_)(plain_function) is plain_function
    assert app.types == ["a", "b", "c", "t"]
    with ThreadPoolExecutor() as threads:
        runners = PythonRunners(app, threads)
        assert [bool(runners.find(type_)) for type_ in ("b", "B", "")] == [True, False, False]


class AsyncCallable:
    async def __call__(self, task: Task) -> None: ...


class PlainCallable:
    def __call__(self, task: Task) -> None: ...


async def coroutine_function(task: Task) -> None: ...


def plain_function(task: Task) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        *((each, True) for each in (coroutine_function, AsyncCallable(), AsyncCallable().__call__)),
        *((each, False) for each in (plain_function, PlainCallable(), print)),
        *((each, False) for each in (lambda *_: None, lambda task, more=1: None)),
        (partial(coroutine_function), True),
        (partial(plain_function), False),
    ],
)
def test_takes_all_that_can_be_called_with_a_task(function: Any, is_async: bool) -> None:
    app = App()
    app.handler("t")(function)
    assert (found(app).function, found(app).is_async) == (function, is_async)


def _yields(task: Task) -> Any:
    yield task


async def _yields_async(task: Task) -> Any:
    yield task


REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"type": ""}, plain_function, "non-empty"),
    ({"type": plain_function}, None, r'@app.handler\("import.contacts"\)'),  # without its brackets
    ({"timeout": 0}, plain_function, "timeout"),
    ({"max_attempts": 0}, plain_function, "max_attempts"),
    ({"interval": 0}, plain_function, "interval"),
    ({"jitter": 1.1}, plain_function, "jitter"),
    ({"jitter": -0.1}, plain_function, "jitter"),
    ({"model": Contact}, plain_function, r"is called with \(task, body\): too many"),
    ({}, lambda: None, r"<lambda>\(\), the handler of 't', is called with \(task\)"),
    ({}, lambda task, more: None, "missing a required argument: 'more'"),
    ({}, lambda task, *, more: None, "missing a required"),
    ({}, _yields, "has a yield in it"),
    ({}, _yields_async, "has a yield in it"),
    ({}, PlainCallable, "has to be a function"),
    ({}, 3, "has to be a function"),
]


@pytest.mark.parametrize(("words", "function", "said"), REFUSED)
def test_refuses_what_makes_no_sense(words: dict[str, Any], function: Any, said: str) -> None:
    app = App()
    with pytest.raises(ValueError, match=said):
        app.handler(**{"type": "t", **words})(function)
    assert app.types == []


class PlainMiddleware:
    def __call__(self, task: Task, call_next: Any) -> None: ...


NO_MIDDLEWARE: list[Any] = [
    (plain_function, r"plain_function\(task\), a middleware, is called with \(task, call_next\)"),
    (coroutine_function, "too many positional arguments"),
    (lambda task, call_next: None, "<lambda>, a middleware, has to be a coroutine function"),
    (PlainMiddleware(), "PlainMiddleware, a middleware, has to be a coroutine function"),
    (_yields_async, "has a yield in it"),
    ("timed", "a middleware has to be a function, not str"),
]


@pytest.mark.parametrize(("function", "said"), NO_MIDDLEWARE)
def test_refuses_what_can_not_surround_an_attempt(function: Any, said: str) -> None:
    app = App()
    with pytest.raises(ValueError, match=said):
        app.middleware(function)
    assert app.middlewares == ()


def test_refuses_a_second_handler_for_a_type() -> None:
    app = App()
    app.handler("t")(plain_function)
    with pytest.raises(ValueError, match="'t' already has a handler"):
        app.handler("t")
    assert found(app).function is plain_function


async def test_the_lifespan_surrounds_the_work() -> None:
    """One that guards its yield closes after an error too; none does nothing."""
    async with App().running() as nothing:
        assert nothing is None
    app = App()

    @app.lifespan
    async def pools(app: App) -> AsyncIterator[None]:
        app.state["pool"] = "open"
        try:
            yield
        finally:
            app.state["pool"] = "closed"

    async with app.running():
        assert app.state["pool"] == "open"
    assert app.state["pool"] == "closed"
    with pytest.raises(RuntimeError, match="the daemon"):
        async with app.running():
            raise RuntimeError("the daemon fell over")
    assert app.state["pool"] == "closed"
