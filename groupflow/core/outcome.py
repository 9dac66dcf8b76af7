"""What a handler may answer. A handler's result is a value; `flow/settling.py` acts on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

from groupflow.core.template import has_controls, show

MOST_STAGE = 1024  # characters
Scope: TypeAlias = Literal["task", "group", "tenant"]


class FollowUp(Protocol):
    """A message that is published once its task is done: a `groupflow.Message`."""

    @property
    def body(self) -> Any:
        """A JSON object: its bytes, its text, or a mapping."""


@dataclass(frozen=True, slots=True)
class Done:
    """The task is finished. Returning ``None`` means the same.

    Attributes:
        result: any JSON value of up to 64 KiB, told with the task's end. The task is done even if
            it is larger or no JSON, and `result_error` says so.
        then: messages of follow-up tasks. They are published if and only if this task is accepted
            as done, in order, with ids of their own: ``<task id>/then/<n>``.
    """

    result: Any = None
    then: Sequence[FollowUp] = ()

    @property
    def says_more(self) -> bool:
        """Whether it has a result, or follow-up tasks."""
        return self.result is not None or self.then != ()


@dataclass(frozen=True, slots=True)
class Untold:
    """Stands for a result that a remote worker couldn't send.

    Attributes:
        why: told as `result_error`.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; try again.

    Attributes:
        after: seconds to wait, or ``None`` for what the retry policy says.
        reason: kept with the attempt, and with the dead letter if this was the last one.
        scope: what waits for as long: the task alone, or all of its group or of its tenant, of
            which nothing starts until then. For a remote that has had enough of all of them.
    """

    after: float | None = None
    reason: str = ""
    scope: Scope = "task"


@dataclass(frozen=True, slots=True)
class Advance:
    """This stage is finished; queue the task again for the next one, at attempt 1.

    Attributes:
        stage: the next stage's name, handed to the handler as ``task.stage``: 1 to 1,024
            characters, none of them a control character.
        context: any JSON value, handed on as ``task.context``.
        after: seconds before which the next stage may not start.
    """

    stage: str
    context: Any = None
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn(Advance):
    """A task that never ends has had its turn, and lines up behind all waiting tasks of its group.

    A turn that ended well shows that the task kills no daemon: crashes so far no longer count.

    Attributes:
        crashed: it has not ended well, and crashes go on counting.
        rows: that it has done, and that have failed and come again.
    """

    crashed: bool = False
    rows: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Dead:
    """The task can never succeed: make it a dead letter now, even if attempts are left."""

    reason: str


@dataclass(frozen=True, slots=True)
class Halt(Dead):
    """A task that never ends can't go on: its group stands until an operator redrives it.

    Attributes:
        context: the task then goes on with it.
        rows: as of a `Turn`.
    """

    context: Any = None
    rows: tuple[int, int] = (0, 0)


SCOPES: tuple[Scope, ...] = get_args(Scope)
Outcome: TypeAlias = Done | Retry | Advance | Dead


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    call = getattr(function, "__call__", None)  # noqa: B004  an instance with async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def wrong_stage(stage: object) -> str:
    """Why a stage can't have this name; empty where it can.

    Command handlers get it in their environment, where NUL ends a text; URL handlers in a header.
    """
    if not isinstance(stage, str) or not stage:
        return f"the stage is no text: {show(stage)}"
    if len(stage) > MOST_STAGE:
        return f"the stage has {len(stage)} characters, over {MOST_STAGE}"
    if has_controls(stage):
        return f"the stage has control characters, or half a character: {show(stage)}"
    return ""
