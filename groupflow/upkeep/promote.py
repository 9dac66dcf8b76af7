"""promote: what was delayed and is due now may be claimed. It sleeps until then, never polls."""

from __future__ import annotations

import structlog

from groupflow.core.measures import UpkeepMeasures
from groupflow.crashpoints import crash_point
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds
from groupflow.store.scripts import Verb
from groupflow.upkeep.duty import Duty

log = structlog.get_logger("groupflow.promote")

AT_ONCE = 200  # tasks, and groups, a script: bounds how long one may block Redis
LONGEST = 30.0  # seconds; a wake tells of an earlier due time, unless it was lost


class Promoter(Duty):
    """Promotes at the due time. Any number of daemons may: the script decides."""

    name = "promote"
    again = 0.5

    def __init__(self, client: StoreClient, measures: UpkeepMeasures) -> None:
        super().__init__()
        self._measures = measures
        self._client = client

    async def run_once(self) -> float:
        """Promote what is due."""
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
