"""pressure: whether intake, or a pool's list, has to wait: the store holds as much as it should."""

from __future__ import annotations

from time import monotonic

from groupflow.core.errors import GroupflowError
from groupflow.core.measures import Pause
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import UNBOUNDED, bound_of_delays

RESUME_AT = 0.9  # of a limit: a pause ends clearly below where it began
LOOK_EVERY = 1.0  # seconds between two looks at Redis's memory while all is well


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

        What waits for delays isn't among the tasks: its bytes are bounded by `delayed_memory`. A
        pause begins at a `share` of the limits; Redis's memory is asked for each `look_every` s.
        """
        self._share = share
        self._look_every = look_every
        self._delayed_memory = delayed_memory
        self._client = client
        self._max_waiting = max_waiting
        self._max_memory = max_memory
        self._used = self._room = 0
        self._looked = 0.0
        self._is_on = False
        self.kind: Pause = ""
        """Which limit is reached; empty for none."""

    async def reason(self, queued: int, size: int = 0) -> str:
        """Why intake has to wait, or an empty text. Once it waits, it does until well below.

        `queued` counts the tasks that wait in the store now, but for those that wait for delays;
        `size` has the bytes that are about to be written.
        """
        share = RESUME_AT if self._is_on else self._share
        reason = ""
        kind: Pause = ""
        if queued >= self._max_waiting * share:
            kind = "waiting"
            reason = f"{queued} tasks wait, and redis.max_waiting is {self._max_waiting}"
        else:
            await self.look()
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

    async def look(self) -> None:
        """Ask how much memory Redis has and uses, every now and then."""
        if not self._is_on and monotonic() - self._looked < self._look_every:
            return
        try:
            found = await self._client.info("memory")
        except GroupflowError:
            return  # the next enqueue will say so; or the user may not ask, which doctor points out
        self._used, self._room = int(found["used_memory"]), int(found.get("maxmemory", 0))
        self._looked = monotonic()
