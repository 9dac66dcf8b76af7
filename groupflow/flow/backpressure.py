"""When intake, or a pool's list, waits: the store's limits, and what intake tells of its pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic, time
from typing import Any, Final, Literal, TypeAlias

from groupflow.core.backoff import Outage
from groupflow.core.checkup import Check
from groupflow.core.errors import GroupflowError
from groupflow.core.measures import IntakeMeasures, Pause
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import UNBOUNDED, bound_of_delays

RESUME_AT = 0.9  # of a limit: a pause ends clearly below where it began
LOOK_EVERY = 1.0  # seconds between two looks at Redis's memory while there is plenty

Kind: TypeAlias = Pause | Literal["away"]
"""Why intake takes nothing in: a pause, or no connection to RabbitMQ; empty if it takes."""

_OUTBOX_FULL: Final = "what RabbitMQ is still to be told has reached events.max_memory"
_REMEDY: Final = "Messages wait in RabbitMQ meanwhile."
_FULL: Final = ("memory", "store_full")
_TOLD: Final = (
    "waiting",
    "outbox",
    *_FULL,
    "too_few_replicas",
)  # with Redis away, telling others fails
_WORST_FIRST: Final[tuple[Kind, ...]] = (
    *_FULL,
    *("too_few_replicas", "store_unavailable", "outbox", "waiting", "away", ""),
)


class Backpressure:
    """Compares what waits, and Redis's memory, with their limits."""

    def __init__(
        self,
        client: StoreClient,
        *,
        max_waiting: int,
        max_memory: int,
        delayed_memory: int = UNBOUNDED,
        share: float = 1.0,
        look_every: float = LOOK_EVERY,
    ) -> None:
        """Binds the limits: of waiting tasks, of Redis's memory in use (bytes; 0 = none), delays.

        Delayed tasks don't count as waiting: `delayed_memory` bounds their bytes. A pause begins at
        a `share` of the limits. Redis's memory is asked for every `look_every` s, and sooner where
        what was written since may have filled it.
        """
        self._share = share
        self._look_every = look_every
        self._delayed_memory = delayed_memory
        self._client = client
        self._max_waiting = max_waiting
        self._max_memory = max_memory
        self._used = self._room = self._written = 0
        self._looked = 0.0
        self._is_on = False
        self.kind: Pause = ""
        """Which limit is reached; empty for none."""
        self.is_outbox_full = False  # by the last enqueue

    async def reason(self, queued: int, size: int = 0) -> str:
        """Why intake has to wait, or an empty text. A pause lasts until well below the limit.

        `queued` counts the tasks that wait in the store now, without delayed ones; `size` has the
        bytes about to be written.
        """
        share = RESUME_AT if self._is_on else self._share
        reason = ""
        kind: Pause = ""
        if queued >= self._max_waiting * share:
            kind = "waiting"
            reason = f"{queued} tasks wait, and redis.max_waiting is {self._max_waiting}"
        elif self.is_outbox_full:
            kind, reason = "outbox", _OUTBOX_FULL
        else:
            if self._is_due(size):
                await self._ask()
            if self._max_memory and self._used + size >= self._max_memory * share:
                kind = "memory"
                reason = (
                    f"Redis uses {self._used} bytes, and redis.max_memory is {self._max_memory}"
                )
        self._is_on, self.kind = bool(reason), kind
        return reason

    @property
    def delayed_memory(self) -> int:
        return bound_of_delays(self._delayed_memory, self._max_memory, self._room)

    def wrote(self, size: int) -> None:
        """Count bytes of bodies that went into Redis."""
        self._written += size

    async def look(self) -> None:
        """Ask how much memory Redis has and uses, where that is due."""
        if self._is_due():
            await self._ask()

    def _is_due(self, size: int = 0) -> bool:
        """Whether the last look is old, or memory may be full with `size` bytes more."""
        guess = self._used + self._written + size
        has_room = not self._max_memory or guess < self._max_memory * self._share
        is_fresh = monotonic() - self._looked < self._look_every
        return self._is_on or not (is_fresh and has_room)

    async def _ask(self) -> None:
        try:
            found = await self._client.info("memory")
        except GroupflowError:
            return  # the next enqueue reports it; doctor reports a user who may not ask
        self._used, self._room = int(found["used_memory"]), int(found.get("maxmemory", 0))
        self._looked, self._written = monotonic(), 0


class IntakeState:
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
        self.outage = Outage(monotonic)  # of RabbitMQ, by queue: decides what is logged

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
            self._since = time()
        self._measures.paused = pause
        if self._told_kind != before:
            self._on_change()

    @property
    def _told_kind(self) -> str:
        return self._kind if self._kind in _TOLD else ""

    @property
    def lacks_memory(self) -> bool:
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
        """What `status` tells: nothing, unless intake pauses; `since` in Unix seconds."""
        if not self._told_kind:
            return {}
        return {"intake": {"paused": self._reason, "since": round(self._since, 3)}}
