"""handle: run the user's code on one attempt and turn whatever happens into an outcome."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from groupflow.core.app import App, Handler
from groupflow.core.outcome import Advance, Dead, Done, Outcome, Retry
from groupflow.core.task import Task

log = structlog.get_logger("groupflow.handling")

MESSAGE_CHARS = 2_000  # of an exception's text that is kept with the attempt


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, or answered what no handler may.

    Attributes:
        error: the exception's type.
        message: its text, capped.
    """

    error: str
    message: str


class Handlers(Protocol):
    """Whoever can run a task: registered Python functions, or something else of the same shape."""

    async def handle(self, task: Task) -> Outcome | Failed:
        """Run one attempt to its outcome. Never raises but for cancellation."""


class PythonHandlers:
    """Runs the functions of an `App`: coroutines on the loop, plain functions in a thread."""

    def __init__(self, app: App, threads: Executor) -> None:
        self._app = app
        self._threads = threads

    async def handle(self, task: Task) -> Outcome | Failed:
        """Run the handler of the task's type.

        A plain function can't be stopped: an attempt that is cancelled ends when its thread does.
        """
        handler = self._app.find(task.type)
        if handler is None:
            return Dead(f"no handler for type {task.type!r}")
        try:
            return _checked(await self._call(handler, task))
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            return failed(error)  # the handler raised it by itself
        except BaseException as error:  # noqa: BLE001  a handler's sys.exit() must not end the daemon
            return failed(error)

    async def _call(self, handler: Handler, task: Task) -> Any:
        if handler.is_async:
            return await handler.function(task)  # type: ignore[misc]
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        thread = loop.run_in_executor(self._threads, _in_thread, context, handler, task)
        while True:
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                if thread.done():
                    raise
                # A thread can't be stopped. Its task must not run a second time beside it, so the
                # attempt ends when the thread does.
                log.warning("handler.unstoppable", task=task.id, type=task.type)


def _in_thread(context: contextvars.Context, handler: Handler, task: Task) -> Any:
    try:
        return context.run(handler.function, task)
    except StopIteration as error:  # a future can't carry it
        raise RuntimeError(f"the handler raised StopIteration: {error}") from error


def _checked(answer: Any) -> Outcome | Failed:
    if answer is None:
        return Done()
    if isinstance(answer, (Done, Retry, Advance, Dead)):
        return answer
    return Failed(
        "TypeError",
        f"a handler returns None, Done, Retry, Advance or Dead, not {type(answer).__name__}",
    )


def failed(error: BaseException) -> Failed:
    """What is kept of an exception: its type and text, whatever its `__str__` does."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  a stranger's __str__
        message = "(its text can't be read)"
    return Failed(type(error).__name__, message[:MESSAGE_CHARS])
