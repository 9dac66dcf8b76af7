"""pressure: whether intake has to wait, since the store holds as much as it should."""

from __future__ import annotations

from time import monotonic

from groupflow.core.errors import StoreUnavailable
from groupflow.core.measures import Pause
from groupflow.store.client import StoreClient

RESUME_AT = 0.9  # of a limit: a pause ends clearly below where it began
LOOK_EVERY = 1.0  # seconds between two looks at Redis's memory while all is well


class Pressure:
    """Compares what waits, and Redis's memory, with their limits."""

    def __init__(self, client: StoreClient, *, max_waiting: int, max_memory: int) -> None:
        """Binds the limits.

        Args:
            client: asked for Redis's memory.
            max_waiting: waiting tasks at which intake pauses.
            max_memory: bytes of Redis's memory in use at which intake pauses; 0 for none.
        """
        self._client = client
        self._max_waiting = max_waiting
        self._max_memory = max_memory
        self._used = 0
        self._looked = 0.0
        self._is_on = False
        self.kind: Pause = ""
        """Which limit is reached; empty for none."""

    async def reason(self, queued: int) -> str:
        """Why intake has to wait, or an empty text. Once it waits, it does until well below.

        Args:
            queued: how many tasks wait in the store now.
        """
        share = RESUME_AT if self._is_on else 1.0
        reason = ""
        kind: Pause = ""
        if queued >= self._max_waiting * share:
            kind = "waiting"
            reason = f"{queued} tasks wait, and redis.max_waiting is {self._max_waiting}"
        elif self._max_memory:
            await self._look()
            if self._used >= self._max_memory * share:
                kind = "memory"
                reason = (
                    f"Redis uses {self._used} bytes, and redis.max_memory is {self._max_memory}"
                )
        self._is_on, self.kind = bool(reason), kind
        return reason

    async def _look(self) -> None:
        if not self._is_on and monotonic() - self._looked < LOOK_EVERY:
            return
        try:
            self._used = int((await self._client.info("memory"))["used_memory"])
        except StoreUnavailable:
            return  # the next enqueue will say so
        self._looked = monotonic()
