"""promote: what was delayed and is due now may be claimed. It sleeps until then, never polls."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from groupflow.core.errors import GroupflowError
from groupflow.core.measures import UpkeepMeasures
from groupflow.crashpoints import crash_point
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds
from groupflow.store.scripts import Verb

log = structlog.get_logger("groupflow.promote")

AT_ONCE = 200  # tasks, and groups, a script: bounds how long one may block Redis
LONGEST = 30.0  # seconds; a wake tells of an earlier due time, unless it was lost
TRY_AGAIN = 0.5


class Promoter:
    """Promotes at the due time. Any number of daemons may: the script decides."""

    def __init__(self, client: StoreClient, measures: UpkeepMeasures | None = None) -> None:
        self._measures = measures or UpkeepMeasures()
        self._client = client
        self._stir = asyncio.Event()

    def wake(self) -> None:
        """Something may be due earlier than thought."""
        self._stir.set()

    async def run(self) -> None:
        """Promote for ever."""
        while True:
            self._stir.clear()
            try:
                pause = await self.run_once()
            except GroupflowError as error:
                log.warning("promote.failed", error=str(error))
                pause = TRY_AGAIN
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stir.wait()

    async def run_once(self) -> float:
        """One pass.

        Returns:
            Seconds until the next task or group is due, `LONGEST` at most.
        """
        crash_point("before_promote")
        promoted, wait = await self._client.run(Verb.PROMOTE, AT_ONCE)
        crash_point("after_promote", promoted)
        if promoted:
            self._measures.promoted += promoted
            log.debug("task.promoted", count=promoted)
        if wait < 0:
            return LONGEST
        # A millisecond late rather than a microsecond early, which would be one more call.
        return min(LONGEST, seconds(wait) + 0.001)
