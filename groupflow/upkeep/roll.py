"""roll: begin a new history segment when the newest is full or aged, and drop the oldest whole."""

from __future__ import annotations

import asyncio

import structlog

from groupflow.core.errors import GroupflowError
from groupflow.store.client import StoreClient
from groupflow.store.history import roll_history, sweep_renamed

log = structlog.get_logger("groupflow.roll")

PAUSE = 15.0  # seconds; a segment that is closed a little late costs a little memory, nothing else


class Roller:
    """Rolls the history over. Any number of daemons may: the script decides."""

    def __init__(self, client: StoreClient, *, keep: float, size: int) -> None:
        self._client = client
        self._keep = keep
        self._size = size

    async def run(self) -> None:
        """Roll for ever."""
        while True:
            try:
                await self.run_once()
            except GroupflowError as error:
                log.warning("roll.failed", error=str(error))
            await asyncio.sleep(PAUSE)

    async def run_once(self) -> bool:
        """One look.

        Returns:
            Whether a segment was begun.
        """
        rolled = await roll_history(self._client, keep=self._keep, size=self._size)
        if rolled:
            log.info("history.rolled")
        while await sweep_renamed(self._client):
            pass
        return rolled
