"""The task as its handler sees it on one attempt, and where a dead one's body may lie."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog

from groupflow.core.progress import pack_progress


class _Said:
    """What was said is noted already: a coroutine may await this, to let others run."""

    def __await__(self) -> Generator[None]:
        yield


_SAID = _Said()
_NOTED = "_progress"  # among a task's own names: the figures that its handler said last


@dataclass(frozen=True)  # without slots: the store fills a claim's task in one step
class Task:
    """One attempt at one task.

    Attributes:
        id: the message id, or a fresh one where the publisher set none. Where that belongs to
            another application or tenant, or to an old dead letter, it begins with the message id.
        type: names the handler.
        group: the group key as rendered (``contact:42``), ``None`` for a plain task.
        body: the bytes as they were published, never re-serialised.
        headers: the AMQP headers, as JSON can carry them.
        tenant: the tenant as text, ``None`` where the body names none.
        attempt: which attempt of this stage this is, from 1.
        crashes: how many claims of this task ended without a settle (its daemon died, or lost its
            lease), from 0. A run that a stop cancelled is not counted, nor one that a batch's
            outcome sends back.
        lost_leases: how many of `crashes` are lost leases, or runs that a stop could not end: no
            daemon is known to have died of them.
        stage: the stage that the last `Advance` named, ``None`` before the first.
        context: what the last `Advance` handed on.
        fence: strictly rising over all claims in its partition. Guard your own writes with it:
            ``UPDATE … SET fence = :fence WHERE id = :id AND fence <= :fence``.
        enqueued_at: when the task became durable, Unix seconds by Redis's clock.
        cancelled: whether it is to be cancelled. It may become so while the attempt runs: a thread,
            or a batch with other tasks, is not cancelled itself, and may look here and end early.
    """

    id: str
    type: str
    group: str | None = None
    body: bytes = b""
    headers: Mapping[str, Any] = field(default_factory=dict)
    tenant: str | None = None
    attempt: int = 1
    crashes: int = 0
    stage: str | None = None
    context: Any = None
    fence: int = 0
    enqueued_at: float = 0.0
    lost_leases: int = 0
    cancelled: bool = False

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger whose lines carry the task's id, group, attempt and fence."""
        logger: structlog.stdlib.BoundLogger = structlog.get_logger("groupflow.handler").bind(
            task=self.id, group=self.group, attempt=self.attempt, fence=self.fence
        )
        return logger

    def json(self) -> Any:
        """Parse the body as JSON.

        Integers beyond 64 bits come out as floats, and of two equal keys the last one wins;
        where that matters, parse `body` yourself.

        Raises:
            orjson.JSONDecodeError: the body is not JSON.
        """
        return orjson.loads(self.body)

    def progress(self, done: float, total: float | None = None, unit: str = "") -> Awaitable[None]:
        """Say how far this attempt has got, for people: `groupflow task`, `why`, `top`, the page.

        From a coroutine (``await task.progress(400, 1000, "rows")``) or from any thread, without
        ``await``. It costs some microseconds. The last figures said are written within a second,
        and not more often; with the attempt's end they are gone. In a batch they are the batch's,
        of whichever task they are said.

        Args:
            done: so much, from 0 to 2^53.
            total: of how much, more than 0; ``None`` where that isn't known.
            unit: of both: up to 32 printable characters.

        Raises:
            ValueError: one of them can't be used.
        """
        vars(self)[_NOTED] = pack_progress(done, total, unit)
        return _SAID


def take_progress(task: Task) -> bytes | None:
    """The figures that a handler has said of a task since this was last asked, packed."""
    noted: bytes | None = vars(task).pop(_NOTED, None)
    return noted


PULLED = ("id", "type", "group", "tenant", "attempt", "crashes", "fence", "stage", "context")
"""What workers that pull are told of a task beside its body."""


def facts_of(task: Task) -> dict[str, Any]:
    """What handlers in other processes are told of a task beside its headers and body."""
    hidden = ("headers", "body", "cancelled", _NOTED)
    return {name: fact for name, fact in vars(task).items() if name not in hidden}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dead letter's body lies in RabbitMQ's stream, once it has left Redis."""

    offset: int  # its number there
    message_id: str  # the id under which it was published, which proves that it is this body
