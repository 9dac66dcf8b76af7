"""roll: begins a history segment when the newest is full or aged, and drops the oldest whole."""

from __future__ import annotations

import structlog

from groupflow.store.client import StoreClient
from groupflow.store.history import roll_history, sweep_renamed

log = structlog.get_logger("groupflow.roll")

PAUSE = 15.0  # seconds; a segment closed a little late only costs a little memory


async def roll(client: StoreClient, *, keep: float, size: int) -> float:
    """Begin a segment where one is due. Returns the seconds until the next look.

    For `keep` and `size` see `roll_history`.
    """
    if await roll_history(client, keep=keep, size=size):
        log.info("history.rolled")
    while await sweep_renamed(client):
        pass
    return PAUSE
