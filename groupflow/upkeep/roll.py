"""roll: begin a new history segment when the newest is full or aged, and drop the oldest whole."""

from __future__ import annotations

import structlog

from groupflow.store.client import StoreClient
from groupflow.store.history import roll_history, sweep_renamed

log = structlog.get_logger("groupflow.roll")

PAUSE = 15.0  # seconds; a segment that is closed a little late costs a little memory, nothing else


async def roll(client: StoreClient, *, keep: float, size: int) -> float:
    """Begin a segment where it is time. Returns the seconds until the next look.

    For `keep` and `size` see `roll_history`.
    """
    if await roll_history(client, keep=keep, size=size):
        log.info("history.rolled")
    while await sweep_renamed(client):
        pass
    return PAUSE
