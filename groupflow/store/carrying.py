"""How many bytes tasks may carry from stage to stage, and those of one tenant, in one store."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from groupflow.core.errors import GroupflowError
from groupflow.settings.model import Redis
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import UNBOUNDED

CARRIED_SHARE = 0.25  # of Redis's memory, at most: delays may hold another half
LOOK_EVERY = 10.0  # seconds between two looks at how much memory Redis has


@dataclass(frozen=True, slots=True)
class CarriedLimits:
    """Bytes that tasks may carry: their stages, contexts, and errors of failed attempts."""

    every: int = UNBOUNDED  # all tasks of the store together
    tenant: int = UNBOUNDED  # those of one tenant


class Carrying:
    """What a configuration and Redis's memory leave room for."""

    def __init__(self, client: StoreClient, redis: Redis) -> None:
        """Binds the bounds of one partition, as configured; its client tells Redis's memory."""
        self._client = client
        self._carried_memory = redis.carried_memory // redis.partitions
        self._tenant_share = redis.tenant_share
        self._max_memory = redis.max_memory
        self._redis_has = 0  # bytes; 0 where Redis has no limit, or doesn't say
        self._looked = float("-inf")

    async def room(self) -> CarriedLimits:
        """The bounds now."""
        if monotonic() - self._looked > LOOK_EVERY:
            await self._look()
        limits = (int(n * CARRIED_SHARE) for n in (self._max_memory, self._redis_has) if n)
        every = min([self._carried_memory, *limits])
        return CarriedLimits(every, int(every * self._tenant_share))

    async def _look(self) -> None:
        self._looked = monotonic()
        try:
            found = await self._client.info("memory")
        except GroupflowError:
            return  # the settle will say so; or the user may not ask, which doctor points out
        self._redis_has = int(found.get("maxmemory", 0))
