"""Whether intake takes messages just now, or why not, and since when, for all who ask."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from groupflow.core.checkup import Check
from groupflow.core.measures import IntakeMeasures, Pause

Kind: TypeAlias = Pause | Literal["away"]
"""Why intake takes nothing in: a pause, or no connection to RabbitMQ; empty where it does."""

_REMEDY: Final = "Messages wait in RabbitMQ meanwhile."
_FULL: Final = ("memory", "store_full")
_TOLD: Final = ("waiting", *_FULL)  # while a server is away nobody can be told


class Standstill:
    """What intake says of itself; it begins without a connection."""

    def __init__(self, measures: IntakeMeasures, on_change: Callable[[], None]) -> None:
        """Binds whom to tell: `on_change` of a pause that others should hear of, and of its end."""
        self._measures = measures
        self._on_change = on_change
        self._kind: Kind = "away"
        self._reason = "it has not begun yet"
        self._since = 0.0

    def set(self, kind: Kind, reason: str = "") -> None:
        """From here on nothing is taken in, or messages are where `kind` is empty."""
        before, self._kind, self._reason = self._told_kind, kind, reason
        pause: Pause = "" if kind == "away" else kind
        if pause and not self._measures.paused:
            self._since = time.time()
        self._measures.paused = pause
        if self._told_kind != before:
            self._on_change()

    @property
    def _told_kind(self) -> str:
        return self._kind if self._kind in _TOLD else ""

    @property
    def is_for_memory(self) -> bool:
        """Whether it is memory that is missing."""
        return self._kind in _FULL

    def check(self, queue: str) -> Check:
        """For `/readyz`: a backlog at its limit is backpressure at work, no memory is not."""
        match self._kind:
            case "":
                return Check("intake", "ok", f"consumes {queue}")
            case "away" | "store_unavailable":
                return Check("intake", "fail", self._reason, _REMEDY)
        verdict: Literal["warn", "fail"] = "fail" if self.is_for_memory else "warn"
        return Check("intake", verdict, f"paused: {self._reason}", _REMEDY)

    def told(self) -> dict[str, Any]:
        """What `status` tells of it: nothing, unless it stands; `since` in Unix seconds."""
        if not self._told_kind:
            return {}
        return {"intake": {"paused": self._reason, "since": round(self._since, 3)}}
