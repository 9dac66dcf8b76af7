"""sweep: removes dead letters that are past their retention."""

from __future__ import annotations

import structlog

from groupflow.core.measures import UpkeepMeasures
from groupflow.operate.dead import DeadLetters

log = structlog.get_logger("groupflow.sweep")

AT_ONCE = 100  # dead letters a script: bounds how long one may block Redis
PAUSE = 60.0  # seconds; a dead letter that stays a minute longer costs nothing


async def sweep(letters: DeadLetters, retention: float, measures: UpkeepMeasures) -> float:
    """Remove `AT_ONCE` of them at most. Returns the seconds until the next pass."""
    ids = await letters.sweep(retention, AT_ONCE)
    measures.expired += len(ids)
    for id_ in ids:
        log.info("dead.expired", task=id_)
    return PAUSE if len(ids) < AT_ONCE else 0.0
