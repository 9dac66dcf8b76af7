"""What the parts report for traces, and the protocol for it; without traces they hold ``None``.

`ops/traces.py` turns it into OpenTelemetry's spans. Only our own text and facts of the task go
there: no body, and no error's text, which may quote one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from groupflow.core.task import Task

NOTHING: Mapping[str, str] = {}

CARRIED: ContextVar[Mapping[str, str]] = ContextVar("groupflow_carried", default=NOTHING)
"""``traceparent`` and ``tracestate`` of the attempt that runs, for handlers in other processes."""


class Attempt(Protocol):
    def ended(self, outcome: str, error: str = "") -> None:
        """How it ended: a way to settle, or ``lost``; and the type of what went wrong, if any."""


class Tracing(Protocol):
    """Tells of each step of a message's way."""

    def publishing(self, message_id: str, size: int) -> AbstractContextManager[Mapping[str, str]]:
        """A message is published; gives the headers that carry its context."""

    def enqueueing(self, headers: Sequence[Mapping[str, Any]]) -> AbstractContextManager[object]:
        """A batch is written to the store; these are its messages' headers."""

    def processing(self, task: Task) -> AbstractContextManager[Attempt]:
        """A worker runs a task, from its claim until its outcome is known."""
