"""The application: the registry that maps a task's type to the function that handles it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from groupflow.core.outcome import Outcome, is_async
from groupflow.core.policy import MOST_TOGETHER, RetryOverride

Answer: TypeAlias = Outcome | Sequence[Outcome | None] | None  # the second of batch handlers alone
Function: TypeAlias = Callable[..., Awaitable[Answer] | Answer]
ExceptionTypes: TypeAlias = tuple[type[BaseException], ...]
Model: TypeAlias = type[BaseModel]
Lifespan: TypeAlias = Callable[["App"], AbstractAsyncContextManager[None]]

_Registered = TypeVar("_Registered", bound=Function)
_Middleware = TypeVar("_Middleware", bound="Middleware")

SCAN_TYPES = "scan:"  # what the types of tasks of scans begin with


class CallNext(Protocol):
    """Runs the rest of an attempt for a middleware: the next middleware, or else the handler.

    It takes what the handler is to get: the task, or a batch's tasks in sequence. It returns the
    outcome, `Done` where the handler returned ``None``; of a batch the list of outcomes, up to the
    first that isn't done. It raises what the handler raises.
    """

    def __call__(self, task: Any, /) -> Awaitable[Any]: ...


Middleware: TypeAlias = Callable[[Any, CallNext], Awaitable[Any]]


class Included(Protocol):
    """What an application may include: a `groupflow.Scan`."""

    name: str  # no other scan of the namespace has it


@dataclass(frozen=True, slots=True)
class Handler:
    type: str  # the task type that it handles
    function: Function  # what runs; a coroutine function on the loop, a plain one in a thread
    is_async: bool  # which of the two it is
    timeout: float | None = None  # seconds that one attempt may take, None for no limit
    retry: RetryOverride = field(default_factory=RetryOverride)  # its own word on retries
    dead_on: ExceptionTypes = ()  # exceptions after which there is no retry
    model: Model | None = None
    """The pydantic model that a body has to fit, given to the function behind the task."""
    size: int = 0  # most tasks of a call, for a function that takes several; 0: it takes one

    @property
    def name(self) -> str:
        """What its function is called, with the module."""
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{getattr(self.function, '__module__', '?')}.{name}"


@asynccontextmanager
async def _nothing(_app: App) -> AsyncIterator[None]:
    yield


class App:
    """Holds the handlers of one application.

    ```python
    app = App()


    @app.handler("import.contacts")
    async def import_contacts(task: Task) -> None: ...
    ```

    Attributes:
        state: what the lifespan puts there for the handlers, such as connection pools.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._included: dict[str, Included] = {}
        self._middlewares: list[Middleware] = []
        self._lifespan: Lifespan = _nothing
        self.state: dict[str, Any] = {}

    def handler(
        self,
        type: str,
        *,
        timeout: float | None = None,
        max_attempts: int | None = None,
        interval: float | None = None,
        jitter: float | None = None,
        dead_on: ExceptionTypes = (),
        model: Model | None = None,
    ) -> Callable[[_Registered], _Registered]:
        """Register the decorated function for a task type.

        Args:
            type: the task type, as the message's AMQP ``type`` or its body names it.
            timeout: seconds that one attempt may take; past them it is cancelled and has failed.
            max_attempts: attempts before a dead letter; a rule in the configuration wins.
            interval: seconds between attempts, as in ``[retry]``; a rule wins.
            jitter: share of each delay that is random, 0 to 1; a rule wins.
            dead_on: exceptions after which the task is a dead letter at once.
            model: a pydantic model; the function gets ``(task, body)`` with the body as its
                instance, and a body that doesn't fit is a dead letter whose reason names the field.

        Raises:
            ValueError: the type is empty or already has a handler, or a number is out of range; or
                the function can't be called with what it would be given.
        """
        self._check_type(type, "@app.handler")
        retry = _checked_retry(type, timeout, max_attempts, interval, jitter)
        make = partial(Handler, type, timeout=timeout, retry=retry, dead_on=dead_on, model=model)
        return self._registering(type, ("task",) if model is None else ("task", "body"), make)

    def batch_handler(
        self,
        type: str,
        *,
        size: int = 100,
        timeout: float | None = None,
        max_attempts: int | None = None,
        interval: float | None = None,
        jitter: float | None = None,
        dead_on: ExceptionTypes = (),
        model: Model | None = None,
    ) -> Callable[[_Registered], _Registered]:
        """Register the decorated function for several tasks of a type, of one group, in order.

        It is called with as many as wait one behind the other, up to `size` and up to the ``batch``
        of the group's rule: with one where that says nothing, or for a task without a group. It
        returns ``None`` (all are done), one outcome, or a sequence with one for each task, where
        ``None`` is done. The first that isn't done ends the batch: those in front of it are done,
        those behind it go back to their place, and come again. So do all but the first, where one
        outcome for all isn't done, or the function raises.

        Args:
            type: as for `handler`; so are the others.
            size: most tasks that it takes at once.
            timeout: seconds that one call may take.
            max_attempts: attempts before a dead letter.
            interval: seconds between attempts.
            jitter: share of each delay that is random, 0 to 1.
            dead_on: exceptions after which the first task is a dead letter at once.
            model: a pydantic model; the function gets ``(tasks, bodies)``, two sequences of one
                length. A body that doesn't fit ends the batch in front of its task, which becomes
                a dead letter.

        Raises:
            ValueError: as for `handler`; or the size is none from 1 to 500.
        """
        self._check_type(type, "@app.batch_handler")
        if not 1 <= size <= MOST_TOGETHER:
            raise ValueError(f"size = {size} of handler {type!r}: from 1 to {MOST_TOGETHER}")
        retry = _checked_retry(type, timeout, max_attempts, interval, jitter)
        make = partial(Handler, type, timeout=timeout, retry=retry, dead_on=dead_on, model=model)
        given = ("tasks",) if model is None else ("tasks", "bodies")
        return self._registering(type, given, partial(make, size=size))

    def _registering(
        self, type: str, given: tuple[str, ...], make: Callable[..., Handler]
    ) -> Callable[[_Registered], _Registered]:
        """The decorator that registers a function, once its facts are checked."""

        def register(function: _Registered) -> _Registered:
            _check_callable(f"the handler of {type!r}", function, given)
            self._handlers[type] = make(function=function, is_async=is_async(function))
            return function

        return register

    def _check_type(self, type: str, decorator: str) -> None:
        """Refuse a type that none may have.

        Raises:
            ValueError: it is empty, a scan's, or has a handler.
        """
        if not isinstance(type, str):  # the decorator without its brackets registers nothing
            raise ValueError(  # noqa: TRY004  as for all else that is wrong with it
                f'{decorator} wants the task type: {decorator}("import.contacts")'
            )
        if not type:
            raise ValueError("a handler needs a non-empty task type")
        if type.startswith(SCAN_TYPES):
            raise ValueError(
                f"the task type {type!r}: those that begin with {SCAN_TYPES!r} are of scans"
            )
        if type in self._handlers:
            raise ValueError(f"the task type {type!r} already has a handler")

    def middleware(self, function: _Middleware) -> _Middleware:
        """Register the decorated coroutine function to surround each attempt of all handlers.

        It is called with ``(task, call_next)``, or ``(tasks, call_next)`` around a batch handler.
        The first one registered is the outermost. ``await call_next(task)`` runs the rest; called
        again, it runs the rest again, within the same attempt and its time limit.

        The middleware's answer is the attempt's outcome, as a handler's is. ``None`` keeps what
        `call_next` returned; without a call it means done, and after one that raised the attempt
        has failed. An exception of the middleware counts as the handler's.

        Raises:
            ValueError: it is no coroutine function, or can't be called so.
        """
        _check_callable("a middleware", function, ("task", "call_next"))
        if not is_async(function):
            name = getattr(function, "__qualname__", function.__class__.__name__)
            raise ValueError(f"{name}, a middleware, has to be a coroutine function: async def")
        self._middlewares.append(function)
        return function

    @property
    def middlewares(self) -> Sequence[Middleware]:
        """All of them, the outermost first."""
        return tuple(self._middlewares)

    def include(self, scan: Included) -> None:
        """Let the daemons of this application run a scan.

        Raises:
            ValueError: there is one of that name already.
        """
        if scan.name in self._included:
            raise ValueError(f"there is a scan {scan.name!r} already")
        self._included[scan.name] = scan

    @property
    def scans(self) -> list[Included]:
        """The scans, by name."""
        return [self._included[name] for name in sorted(self._included)]

    def lifespan(self, function: Callable[[App], AsyncIterator[None]]) -> Lifespan:
        """Register the async generator function that surrounds the daemon's work.

        What stands before its ``yield`` runs before the first task (open pools into `state`), what
        stands behind it after the last.
        """
        self._lifespan = asynccontextmanager(function)
        return self._lifespan

    def running(self) -> AbstractAsyncContextManager[None]:
        """The registered lifespan as a context."""
        return self._lifespan(self)

    @property
    def handlers(self) -> list[Handler]:
        """All of them."""
        return list(self._handlers.values())

    @property
    def names(self) -> dict[str, str]:
        """What the handlers' functions are called, by task type."""
        return {type_: self._handlers[type_].name for type_ in self.types}

    @property
    def types(self) -> list[str]:
        return sorted(self._handlers)


def _checked_retry(
    type: str,
    timeout: float | None,
    max_attempts: int | None,
    interval: float | None,
    jitter: float | None,
) -> RetryOverride:
    """A handler's own word on retries.

    Raises:
        ValueError: a number is out of range.
    """
    if timeout is not None and timeout <= 0:
        raise ValueError(f"timeout = {timeout} of handler {type!r}: seconds above 0, or None")
    if max_attempts is not None and max_attempts < 1:
        raise ValueError(f"max_attempts = {max_attempts} of handler {type!r}: at least 1")
    if interval is not None and interval == 0:
        raise ValueError(f"interval = 0 of handler {type!r}: below 0 even, above 0 progressive")
    if jitter is not None and not 0 <= jitter <= 1:
        raise ValueError(f"jitter = {jitter} of handler {type!r}: a share from 0 to 1")
    return RetryOverride(max_attempts, interval, jitter)


def _check_callable(what: str, function: Callable[..., Any], given: tuple[str, ...]) -> None:
    """Refuse a function that every attempt would fail to call.

    Raises:
        ValueError: it is none, or takes something else than it would be given.
    """
    name = getattr(function, "__qualname__", function.__class__.__name__)
    if not callable(function) or inspect.isclass(function):
        raise ValueError(f"{what} has to be a function, not {name}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"{name}, {what}, has a yield in it: it would never run")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of C, some have none
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        takes = signature.replace(
            parameters=[
                each.replace(annotation=each.empty) for each in signature.parameters.values()
            ],
            return_annotation=signature.empty,
        )
        raise ValueError(
            f"{name}{takes}, {what}, is called with ({', '.join(given)}): {error}"
        ) from None
