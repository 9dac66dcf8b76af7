"""promote: what was delayed and is due now may be claimed. It sleeps until then, never polls."""

from __future__ import annotations

import structlog

from groupflow.core.measures import UpkeepMeasures
from groupflow.crashpoints import crash_point
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds
from groupflow.store.scripts import Verb

log = structlog.get_logger("groupflow.promote")

AT_ONCE = 200  # tasks, and groups, a script: bounds how long one may block Redis
LONGEST = 30.0  # seconds; a wake tells of an earlier due time, unless it was lost


async def promote(client: StoreClient, measures: UpkeepMeasures) -> float:
    """Promote what is due. Returns the seconds until more will be."""
    crash_point("before_promote")
    promoted, wait = await client.run(Verb.PROMOTE, AT_ONCE)
    crash_point("after_promote", promoted)
    if promoted:
        measures.promoted += promoted
        log.debug("task.promoted", count=promoted)
    if wait < 0:
        return LONGEST
    # A millisecond late rather than a microsecond early, which would be one more call.
    return min(LONGEST, seconds(wait) + 0.001)
