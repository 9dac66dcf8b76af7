"""standstill: whether intake stands just now, why, and since when, for all who ask."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from groupflow.core.checkup import Check, Verdict
from groupflow.core.measures import IntakeMeasures, Pause

_REMEDY: Final = "Messages wait in RabbitMQ meanwhile."
_FULL: Final[tuple[Pause, ...]] = ("memory", "store_full")
_TOLD: Final[tuple[Pause, ...]] = ("waiting", *_FULL)  # while Redis is away nobody can be told


class Standstill:
    """What intake says of itself: that it takes messages, or what keeps it from that."""

    def __init__(self, measures: IntakeMeasures, on_change: Callable[[], None]) -> None:
        """Begins without a connection.

        Args:
            measures: told the kind of pause.
            on_change: called when a pause begins or ends that others should hear of.
        """
        self._measures = measures
        self._on_change = on_change
        self._trouble = "it has not begun yet"
        self._reason = ""
        self._since = 0.0
        self._told: Pause = ""

    def trouble(self, why: str) -> None:
        """No connection to RabbitMQ; without one there is nothing to be taken in, nor to pause."""
        self._set("", "")
        self._trouble = why

    def begin(self, kind: Pause, reason: str) -> None:
        """Nothing is taken in from here on, though messages could come."""
        self._trouble = reason if kind == "store_unavailable" else ""
        self._set(kind, reason)

    def end(self) -> None:
        """Messages are taken in."""
        self._trouble = ""
        self._set("", "")

    def _set(self, kind: Pause, reason: str) -> None:
        if kind and not self._measures.paused:
            self._since = time.time()
        self._measures.paused, self._reason = kind, reason
        told: Pause = kind if kind in _TOLD else ""
        if told != self._told:
            self._told = told
            self._on_change()

    @property
    def is_for_memory(self) -> bool:
        """Whether it is memory that is missing."""
        return self._told in _FULL

    def check(self, queue: str) -> Check:
        """For `/readyz`: a backlog at its limit is backpressure at work, no memory is not."""
        if self._trouble:
            return Check("intake", "fail", self._trouble, _REMEDY)
        if not self._measures.paused:
            return Check("intake", "ok", f"consumes {queue}")
        verdict: Verdict = "fail" if self._measures.paused in _FULL else "warn"
        return Check("intake", verdict, f"paused: {self._reason}", _REMEDY)

    def told(self) -> dict[str, Any]:
        """What `status` tells of it: nothing, unless it stands; `since` in Unix seconds."""
        if not self._told:
            return {}
        return {"intake": {"paused": self._reason, "since": round(self._since, 3)}}
