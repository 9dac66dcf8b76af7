"""sweep: remove dead letters that are past their retention."""

from __future__ import annotations

import structlog

from groupflow.core.measures import UpkeepMeasures
from groupflow.store.dead import DeadLetters
from groupflow.upkeep.duty import Duty

log = structlog.get_logger("groupflow.sweep")

AT_ONCE = 100  # dead letters a script: bounds how long one may block Redis
PAUSE = 60.0  # seconds; a dead letter that stays a minute longer costs nothing


class Sweeper(Duty):
    """Sweeps old dead letters."""

    name = "sweep"
    again = PAUSE

    def __init__(self, letters: DeadLetters, retention: float, measures: UpkeepMeasures) -> None:
        super().__init__()
        self._measures = measures
        self._letters = letters
        self._retention = retention

    async def run_once(self) -> float:
        """Remove so many of them at most."""
        ids = await self._letters.sweep(self._retention, AT_ONCE)
        self._measures.expired += len(ids)
        for id_ in ids:
            log.info("dead.expired", task=id_)
        return PAUSE if len(ids) < AT_ONCE else 0.0
