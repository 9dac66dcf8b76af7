"""Plain functions of the application, in threads."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import structlog

from groupflow.core.task import Task

log = structlog.get_logger("groupflow.handling")


async def run_in_thread(
    threads: Executor, task: Task, function: Callable[..., Any], *arguments: Any
) -> Any:
    """What a plain function returns that does the work of a task.

    It can't be stopped: a cancelled attempt ends when its thread does, and the answer holds.

    Raises:
        RuntimeError: no thread can be started, and the function won't be called.
    """
    thread = _begun(threads, function, arguments)
    while True:
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            if thread.done():
                return thread.result()  # it ended before the cancellation came
            # The task must not run a second time beside the thread, so it stays claimed until
            # the thread ends.
            facts = {"task": task.id, "type": task.type}
            # Our own line, without what is bound for the handler's.
            contextvars.Context().run(log.warning, "handler.unstoppable", **facts)


def _begun(
    threads: Executor, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> asyncio.Future[Any]:
    done: Future[Any] = Future()
    call = partial(contextvars.copy_context().run, function, *arguments)
    try:
        threads.submit(_settle, done, call)
    except RuntimeError:
        # The call may be in the executor's queue all the same, for the next free thread.
        if done.cancel():
            raise
    return asyncio.wrap_future(done)


def _settle(done: Future[Any], call: Callable[[], Any]) -> None:
    """Call a function for a future, unless the future was cancelled before."""
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(call())
    except StopIteration as error:  # asyncio's futures can't carry it
        raised = RuntimeError(f"the handler raised StopIteration: {error}")
        done.set_exception(raised.with_traceback(error.__traceback__))
    except BaseException as error:  # noqa: BLE001  the attempt fails, not the thread
        done.set_exception(error)
