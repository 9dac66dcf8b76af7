"""roll: begin a new history segment when the newest is full or aged, and drop the oldest whole."""

from __future__ import annotations

import structlog

from groupflow.store.client import StoreClient
from groupflow.store.history import roll_history, sweep_renamed
from groupflow.upkeep.duty import Duty

log = structlog.get_logger("groupflow.roll")

PAUSE = 15.0  # seconds; a segment that is closed a little late costs a little memory, nothing else


class Roller(Duty):
    """Rolls the history over."""

    name = "roll"
    again = PAUSE

    def __init__(self, client: StoreClient, *, keep: float, size: int) -> None:
        """Binds the duty: a segment has `size` lines at most, each for `keep` seconds at least."""
        super().__init__()
        self._client = client
        self._keep = keep
        self._size = size

    async def run_once(self) -> float:
        """Begin a segment where it is time."""
        if await roll_history(self._client, keep=self._keep, size=self._size):
            log.info("history.rolled")
        while await sweep_renamed(self._client):
            pass
        return PAUSE
