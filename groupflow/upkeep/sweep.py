"""sweep and rotate: remove dead letters past their retention, and the oldest of the history."""

from __future__ import annotations

import structlog

from groupflow.core.measures import UpkeepMeasures
from groupflow.operate.dead import sweep_letters
from groupflow.store.client import StoreClient
from groupflow.store.history import rotate_history, sweep_renamed

log = structlog.get_logger("groupflow.sweep")
_rotate_log = structlog.get_logger("groupflow.rotate")

AT_ONCE = 100  # dead letters a script: bounds how long one may block Redis
PAUSE = 60.0  # seconds; a dead letter that stays a minute longer costs nothing
ROTATE_PAUSE = 15.0  # seconds; a segment closed a little late only costs a little memory


async def sweep(client: StoreClient, retention: float, measures: UpkeepMeasures) -> float:
    """Remove `AT_ONCE` of them at most. Returns the seconds until the next pass."""
    ids = await sweep_letters(client, retention, AT_ONCE)
    measures.swept += len(ids)
    for id_ in ids:
        log.info("dead.swept", task=id_)
    return PAUSE if len(ids) < AT_ONCE else 0.0


async def rotate(client: StoreClient, *, keep: float, size: int) -> float:
    """Begin a history segment where one is due; the oldest one goes whole.

    For `keep` and `size` see `rotate_history`. Returns the seconds until the next look.
    """
    if await rotate_history(client, keep=keep, size=size):
        _rotate_log.info("history.rotated")
    while await sweep_renamed(client):
        pass
    return ROTATE_PAUSE
