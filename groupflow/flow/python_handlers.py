"""Handlers that are Python functions: coroutines on the loop, plain functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import structlog
from pydantic import BaseModel, ValidationError

from groupflow.core.app import App, Handler
from groupflow.core.outcome import Dead, Outcome
from groupflow.core.task import Task
from groupflow.flow.batches import Together, outcomes_of, until_one_is_not_done
from groupflow.flow.handling import Failed, Runner, checked, failed, was_cancelled

log = structlog.get_logger("groupflow.handling")


class PythonRunner:
    """Runs one registered function."""

    def __init__(self, handler: Handler, threads: Executor) -> None:
        self._handler = handler
        self._threads = threads
        self.size = handler.size
        self.timeout = handler.timeout
        self.retry = handler.retry

    async def handle(self, task: Task) -> Outcome | Failed:
        """Run the function on one task.

        A plain function can't be stopped: a cancelled attempt ends when its thread does, and the
        function's answer holds.
        """
        arguments: tuple[Any, ...] = (task,)
        if self._handler.model is not None:
            body = self._parsed(self._handler.model, task)
            if isinstance(body, (Dead, Failed)):
                return body
            arguments = (task, body)
        answer = await self._answer(task, arguments)
        return answer if isinstance(answer, Failed) else checked(answer)

    def _parsed(self, model: type[BaseModel], task: Task) -> BaseModel | Dead | Failed:
        """The body as the function's model; else the task's outcome."""
        try:
            return model.model_validate_json(task.body)
        except ValidationError as error:
            return Dead(_what_does_not_fit(error))
        except BaseException as error:  # noqa: BLE001  a validator is the application's code
            return failed(error, is_final=isinstance(error, self._handler.dead_on))

    async def _answer(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        """The function's answer; `Failed` where it raises."""
        try:
            return await self._call(task, arguments)
        except asyncio.CancelledError as error:
            if was_cancelled():
                raise
            return failed(error)
        except self._handler.dead_on as error:
            return failed(error, is_final=True)
        except BaseException as error:  # noqa: BLE001  a handler's sys.exit() must not end us
            return failed(error)

    async def _call(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        handler = self._handler
        if handler.is_async:
            return await handler.function(*arguments)  # type: ignore[misc]
        thread = self._in_thread(arguments)
        while True:
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                if thread.done():
                    return thread.result()  # it ended before the cancellation came
                # The task must not run a second time beside the thread, so it stays claimed until
                # the thread ends.
                log.warning("handler.unstoppable", task=task.id, type=task.type)

    def _in_thread(self, arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Call the function in a thread.

        Raises:
            RuntimeError: no thread can be started, and the function won't be called.
        """
        done: Future[Any] = Future()
        call = partial(contextvars.copy_context().run, self._handler.function, *arguments)
        try:
            self._threads.submit(_settle, done, call)
        except RuntimeError:
            # The call may be in the executor's queue all the same, for the next free thread.
            if done.cancel():
                raise
        return asyncio.wrap_future(done)


class PythonBatchRunner(Together, PythonRunner):
    """Runs one registered function that takes several tasks."""

    async def handle_all(self, tasks: Sequence[Task]) -> list[Outcome | Failed]:
        """Run the function on the tasks in front of the first whose body doesn't fit."""
        arguments: tuple[Any, ...] = (tasks,)
        misfit: list[Outcome | Failed] = []
        if self._handler.model is not None:
            bodies = []
            for task in tasks:
                body = self._parsed(self._handler.model, task)
                if isinstance(body, (Dead, Failed)):
                    misfit = [body]
                    break
                bodies.append(body)
            tasks = tasks[: len(bodies)]
            arguments = (tasks, bodies)
        if not tasks:
            return misfit
        answer = await self._answer(tasks[0], arguments)
        return until_one_is_not_done([*outcomes_of(answer, len(tasks)), *misfit])


class PythonRunners:
    """The runners of an application's functions."""

    def __init__(self, app: App, threads: Executor) -> None:
        self._runners: dict[str, Runner] = {
            handler.type: (PythonBatchRunner if handler.size else PythonRunner)(handler, threads)
            for handler in app.handlers
        }

    def find(self, type: str) -> Runner | None:
        """The runner of a type, or ``None``."""
        return self._runners.get(type)


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


def _what_does_not_fit(error: ValidationError) -> str:
    """The fields of a body that don't fit, without their values, which are the tenant's."""
    problems = [
        f"{'.'.join(str(step) for step in each['loc']) or 'body'}: {each['msg']}"
        for each in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return "the body doesn't fit: " + "; ".join(problems[:10])
