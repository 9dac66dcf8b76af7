"""pressure: makes intake, or a pool's list, wait while the store holds as much as it should."""

from __future__ import annotations

from time import monotonic

from groupflow.core.errors import GroupflowError
from groupflow.core.measures import Pause
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import UNBOUNDED, bound_of_delays

RESUME_AT = 0.9  # of a limit: a pause ends clearly below where it began
LOOK_EVERY = 1.0  # seconds between two looks at Redis's memory while there is plenty


class Pressure:
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
