"""sweep: remove dead letters that are past their retention."""

from __future__ import annotations

import asyncio

import structlog

from groupflow.core.errors import GroupflowError
from groupflow.core.measures import UpkeepMeasures
from groupflow.store.dead import DeadLetters

log = structlog.get_logger("groupflow.sweep")

AT_ONCE = 100  # dead letters a script: bounds how long one may block Redis
PAUSE = 60.0  # seconds; a dead letter that stays a minute longer costs nothing


class Sweeper:
    """Sweeps old dead letters. Any number of daemons may."""

    def __init__(
        self, letters: DeadLetters, retention: float, measures: UpkeepMeasures | None = None
    ) -> None:
        self._measures = measures or UpkeepMeasures()
        self._letters = letters
        self._retention = retention

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            swept = 0
            try:
                swept = await self.run_once()
            except GroupflowError as error:
                log.warning("sweep.failed", error=str(error))
            if swept < AT_ONCE:
                await asyncio.sleep(PAUSE)

    async def run_once(self) -> int:
        """One pass.

        Returns:
            How many dead letters were removed.
        """
        ids = await self._letters.sweep(self._retention, AT_ONCE)
        self._measures.expired += len(ids)
        for id_ in ids:
            log.info("dead.expired", task=id_)
        return len(ids)
