"""What a handler may answer. A handler's result is a value; `flow/settling.py` acts on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

Scope: TypeAlias = Literal["task", "group"]


@dataclass(frozen=True, slots=True)
class Done:
    """The task is finished. Returning ``None`` means the same."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; try again.

    Attributes:
        after: seconds to wait, or ``None`` for what the retry policy says.
        reason: kept with the attempt, and with the dead letter if this was the last one.
        scope: what waits for as long: the task alone, or its whole group, of which nothing starts
            until then. For a remote that has had enough of all of them.
    """

    after: float | None = None
    reason: str = ""
    scope: Scope = "task"


@dataclass(frozen=True, slots=True)
class Advance:
    """This stage is finished; queue the task again for the next one, at attempt 1.

    Attributes:
        stage: the next stage's name, handed to the handler as ``task.stage``.
        context: any JSON value, handed on as ``task.context``.
    """

    stage: str
    context: Any = None


@dataclass(frozen=True, slots=True)
class Dead:
    """The task can never succeed: make it a dead letter now, whatever attempts are left."""

    reason: str


SCOPES: tuple[Scope, ...] = get_args(Scope)
Outcome: TypeAlias = Done | Retry | Advance | Dead
