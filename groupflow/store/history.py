"""The history of finished tasks, which is also the memory of the dedup window."""

from __future__ import annotations

from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.scripts import Verb

_LOOK = 500  # ids a script: bounds how long one may block Redis


async def rotate_history(client: StoreClient, *, keep: float, size: int) -> bool:
    """Begin a new segment and drop the oldest whole, if it is time for that; returns whether.

    A finished task is remembered for `keep` seconds at least. At `size` entries a segment is
    closed before its time.
    """
    return bool(await client.run(Verb.ROTATE, microseconds(keep), size))


async def sweep_renamed(client: StoreClient) -> bool:
    """Forget some of the message ids that gave way to another's and are unknown by now.

    Returns:
        Whether to look at the next ones at once.
    """
    return int(await client.run(Verb.SWEEP_RENAMED, _LOOK)) > _LOOK // 4
