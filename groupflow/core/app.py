"""The application: the registry that maps a task's type to the function that handles it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from groupflow.core.outcome import Outcome
from groupflow.core.task import Task

AsyncFunction: TypeAlias = Callable[[Task], Awaitable[Outcome | None]]
PlainFunction: TypeAlias = Callable[[Task], Outcome | None]
Function: TypeAlias = AsyncFunction | PlainFunction

_Registered = TypeVar("_Registered", bound=Function)


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered handler.

    Attributes:
        type: the task type that it handles.
        function: what runs; a coroutine function on the loop, a plain one in a thread.
        is_async: which of the two it is.
    """

    type: str
    function: Function
    is_async: bool


class App:
    """Holds the handlers of one application.

    ```python
    app = App()

    @app.handler("import.contacts")
    async def import_contacts(task: Task) -> None: ...
    ```
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def handler(self, type: str) -> Callable[[_Registered], _Registered]:
        """Register the decorated function for a task type.

        Args:
            type: the task type, as the message's AMQP ``type`` or its body names it.

        Raises:
            ValueError: the type is empty or already has a handler.
        """
        if not type:
            raise ValueError("a handler needs a non-empty task type")
        if type in self._handlers:
            raise ValueError(f"the task type {type!r} already has a handler")

        def register(function: _Registered) -> _Registered:
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
                getattr(function, "__call__", None)  # noqa: B004  an instance with async __call__
            )
            self._handlers[type] = Handler(type=type, function=function, is_async=is_async)
            return function

        return register

    def find(self, type: str) -> Handler | None:
        """The handler of a type, or ``None``: types come from strangers."""
        return self._handlers.get(type)

    @property
    def types(self) -> list[str]:
        """The task types that have a handler, sorted."""
        return sorted(self._handlers)
