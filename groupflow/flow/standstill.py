"""Whether intake takes messages now, or why not, and since when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

from groupflow.core.checkup import Check
from groupflow.core.measures import IntakeMeasures, Pause
from groupflow.core.outages import Outage

Kind: TypeAlias = Pause | Literal["away"]
"""Why intake takes nothing in: a pause, or no connection to RabbitMQ; empty if it takes."""

_REMEDY: Final = "Messages wait in RabbitMQ meanwhile."
_FULL: Final = ("memory", "store_full")
_TOLD: Final = ("waiting", *_FULL, "too_few_replicas")  # with Redis away, telling others fails
_WORST_FIRST: Final[tuple[Kind, ...]] = (
    *_FULL,
    *("too_few_replicas", "store_unavailable", "waiting", "away", ""),
)


class Standstill:
    """Intake's state, of all its queues as one; it begins without a connection."""

    def __init__(
        self,
        measures: IntakeMeasures,
        on_change: Callable[[], None],
        queues: Iterable[str] = ("",),
    ) -> None:
        """Binds `on_change`, which is called at a pause that others should know, and at its end."""
        self._measures = measures
        self._on_change = on_change
        begin: tuple[Kind, str] = ("away", "it has not begun yet")
        self._of_queues = dict.fromkeys(queues, begin)
        self._kind: Kind
        self._kind, self._reason = self._worst()
        self._since = 0.0
        self.outage = Outage(time.monotonic)  # of RabbitMQ, by queue: decides what is logged

    def set(self, kind: Kind, reason: str = "", queue: str = "") -> None:
        """From here on intake takes nothing from a queue; with an empty `kind` it takes again."""
        self._of_queues[queue] = (kind, reason)
        self._changed()

    def forget(self, queue: str) -> None:
        """A queue is gone for good."""
        self._of_queues.pop(queue, None)
        self._changed()

    def _worst(self) -> tuple[Kind, str]:
        return min(self._of_queues.values(), key=lambda state: _WORST_FIRST.index(state[0]))

    def _changed(self) -> None:
        before = self._told_kind
        self._kind, self._reason = self._worst()
        pause: Pause = "" if self._kind == "away" else self._kind
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
        """Whether intake pauses for lack of memory."""
        return self._kind in _FULL

    def check(self, queue: str) -> Check:
        """For `/readyz`: a backlog at its limit is backpressure and warns; lack of memory fails."""
        match self._kind:
            case "":
                return Check("intake", "ok", f"consumes {queue}")
            case "away" if away := self._away_among_others:
                found = f"consumes {queue}, but not {', '.join(away)}: {self._reason}"
                return Check("intake", "warn", found, _REMEDY)
            case "away" | "store_unavailable":
                return Check("intake", "fail", self._reason, _REMEDY)
        verdict: Literal["warn", "fail"] = "warn" if self._kind == "waiting" else "fail"
        return Check("intake", verdict, f"paused: {self._reason}", _REMEDY)

    @property
    def _away_among_others(self) -> list[str]:
        """The queues that this daemon doesn't consume, where it consumes others."""
        away = [queue for queue, (kind, _) in self._of_queues.items() if kind == "away"]
        return away if len(away) < len(self._of_queues) else []

    def told(self) -> dict[str, Any]:
        """What `status` tells: nothing, unless intake stands; `since` in Unix seconds."""
        if not self._told_kind:
            return {}
        return {"intake": {"paused": self._reason, "since": round(self._since, 3)}}
