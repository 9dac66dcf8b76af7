"""Requests to cancel tasks that run: who wants that, since when, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from groupflow.operate.reasons import hour_of
from groupflow.store.clock import seconds


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """What `cancels` in Redis, or the history, says of a task."""

    by: str | None = None  # who wants it
    reason: str | None = None
    at: float | None = None  # Unix seconds since when; None where the task didn't run
    newer: str | None = None  # in place of all that: the newer task that replaces this one

    @classmethod
    def of(cls, said: str | Sequence[str]) -> Self:
        """Read its JSON value: a newer task, or a list."""
        if isinstance(said, str):
            return cls(newer=said)
        by, reason, *at = said
        return cls(by, reason or None, seconds(at[0]) if at else None)

    @property
    def facts(self) -> dict[str, Any]:
        """The same by the names of a `Found`."""
        asked = {"cancelled_by": self.by, "reason": self.reason, "asked_at": self.at}
        return {**asked, "superseded_by": self.newer}

    def words(self, *, with_reason: bool = True) -> str:
        """Why a task that runs is still there."""
        if self.newer is not None:
            return f"makes way for the newer task {self.newer}: its handler has not ended yet"
        since = f" since {hour_of(self.at)}" if self.at is not None else ""
        why = f" ({self.reason})" if self.reason and with_reason else ""
        return f"is asked to stop{since}, by {self.by}{why}: its handler has not ended yet"
