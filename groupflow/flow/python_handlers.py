"""Handlers that are Python functions: coroutines on the loop, plain functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import structlog
from pydantic import BaseModel, ValidationError

from groupflow.core.app import App, CallNext, Handler, Middleware
from groupflow.core.outcome import Dead, Done, Outcome
from groupflow.core.task import Task
from groupflow.flow.batches import Together, outcomes_of, until_one_is_not_done
from groupflow.flow.handling import Failed, Runner, checked, failed, was_cancelled
from groupflow.flow.threads import run_in_thread

# Where structlog's `merge_contextvars` finds what to add to each line. Set one by one, they cost a
# third of what its `bind_contextvars` does.
_TASK, _GROUP, _ATTEMPT = (
    token.var
    for token in contextvars.Context()
    .run(structlog.contextvars.bind_contextvars, task=None, group=None, attempt=None)
    .values()
)


class PythonRunner:
    """Runs one registered function, within the application's middleware."""

    def __init__(
        self, handler: Handler, threads: Executor, middlewares: Sequence[Middleware] = ()
    ) -> None:
        self._handler = handler
        self._threads = threads
        self.size = handler.size
        self.timeout = handler.timeout
        self.retry = handler.retry
        self._attempt: CallNext = self._run
        for middleware in reversed(middlewares):
            self._attempt = partial(self._through, middleware, self._attempt)

    async def handle(self, task: Task) -> Outcome | Failed:
        """Run the function on one task.

        A plain function can't be stopped: a cancelled attempt ends when its thread does, and the
        function's answer holds.
        """
        _bind(task)
        try:
            return await self._attempt(task)  # type: ignore[no-any-return]
        except BaseException as error:  # noqa: BLE001  a handler's sys.exit() must not end us
            return self._failure(error)

    def _failure(self, error: BaseException) -> Failed:
        """How an attempt has failed that raised this.

        Raises:
            asyncio.CancelledError: it has been cancelled from outside.
        """
        if isinstance(error, asyncio.CancelledError) and was_cancelled():
            raise error
        return failed(error, is_final=isinstance(error, self._handler.dead_on))

    async def _through(self, middleware: Middleware, call_next: CallNext, given: Any) -> Any:
        """Run a middleware around the rest of an attempt, of one task or of a batch's.

        A thread that ran on past the time limit has used up its cancellation. The middleware then
        has as long again, or one that never ends would hold the worker for good.
        """
        outcome: Any = None  # what the rest came to, the last time
        has_raised = False
        limit: asyncio.TimerHandle | None = None

        async def run_rest(given: Any) -> Any:
            nonlocal outcome, has_raised, limit
            has_raised = True
            outcome = await call_next(given)
            has_raised = False
            current = asyncio.current_task()
            if limit is None and current and self.timeout is not None and was_cancelled():
                limit = asyncio.get_running_loop().call_later(self.timeout, current.cancel)
            return outcome

        try:
            answer = await middleware(given, run_rest)
        finally:
            if limit is not None:
                limit.cancel()
        if answer is None and has_raised:
            name = getattr(middleware, "__qualname__", type(middleware).__name__)
            text = f"{name} returned None, but call_next raised: return an outcome, or raise again"
            answer = Failed("TypeError", text)
        return self._outcome_of(outcome if answer is None else answer, given)

    def _outcome_of(self, answer: Any, _task: Any) -> Any:
        return checked(answer)

    async def _run(self, task: Any) -> Any:
        """The innermost part of an attempt."""
        arguments: tuple[Any, ...] = (task,)
        if self._handler.model is not None:
            body = self._parsed(self._handler.model, task)
            if isinstance(body, Dead):
                return body
            arguments = (task, body)
        return checked(await self._call(task, arguments))

    def _parsed(self, model: type[BaseModel], task: Task) -> BaseModel | Dead:
        """The body as the function's model, or why it isn't. What a validator raises goes on."""
        try:
            return model.model_validate_json(task.body)
        except ValidationError as error:
            return Dead(_what_does_not_fit(error))

    async def _call(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        handler = self._handler
        if handler.is_async:
            return await handler.function(*arguments)  # type: ignore[misc]
        return await run_in_thread(self._threads, task, handler.function, *arguments)


class PythonBatchRunner(Together, PythonRunner):
    """Runs one registered function that takes several tasks."""

    async def handle_all(self, tasks: Sequence[Task]) -> list[Outcome | Failed]:
        """Run the function on the tasks in front of the first whose body doesn't fit."""
        _bind(tasks[0])
        try:
            return await self._attempt(tasks)  # type: ignore[no-any-return]
        except BaseException as error:  # noqa: BLE001  as of one task
            return [self._failure(error)]

    def _outcome_of(self, answer: Any, tasks: Any) -> Any:
        number = len(tasks)
        if isinstance(answer, (list, tuple)) and answer and not isinstance(answer[-1], Done | None):
            number = min(number, len(answer))  # as the rest's: up to the first that isn't done
        return outcomes_of(answer, number)

    async def _run(self, tasks: Any) -> Any:
        arguments: tuple[Any, ...] = (tasks,)
        misfit: list[Outcome | Failed] = []
        if self._handler.model is not None:
            bodies = []
            for task in tasks:
                try:
                    body = self._parsed(self._handler.model, task)
                except BaseException as error:  # noqa: BLE001  those in front of it are run
                    misfit = [self._failure(error)]
                    break
                if isinstance(body, Dead):
                    misfit = [body]
                    break
                bodies.append(body)
            tasks = tasks[: len(bodies)]
            arguments = (tasks, bodies)
        if not tasks:
            return misfit
        answer = await self._call(tasks[0], arguments)
        return until_one_is_not_done([*outcomes_of(answer, len(tasks)), *misfit])


class PythonRunners:
    """The runners of an application's functions."""

    def __init__(self, app: App, threads: Executor) -> None:
        self._runners: dict[str, Runner] = {
            handler.type: (PythonBatchRunner if handler.size else PythonRunner)(
                handler, threads, app.middlewares
            )
            for handler in app.handlers
        }

    def find(self, type: str) -> Runner | None:
        """The runner of a type, or ``None``."""
        return self._runners.get(type)


def _bind(task: Task) -> None:
    """Have all say whose attempt it is that is logged in its context, which ends with it."""
    _TASK.set(task.id)
    _GROUP.set(task.group)
    _ATTEMPT.set(task.attempt)


def _what_does_not_fit(error: ValidationError) -> str:
    """The fields of a body that don't fit, without their values, which are the tenant's."""
    problems = [
        f"{'.'.join(str(step) for step in each['loc']) or 'body'}: {each['msg']}"
        for each in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return "the body doesn't fit: " + "; ".join(problems[:10])
