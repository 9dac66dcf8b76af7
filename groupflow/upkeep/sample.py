"""sample: keeps the totals every ten seconds, so that the page can show an hour of them."""

from __future__ import annotations

import structlog

from groupflow.operate.sampling import INTERVAL, Latencies, survey, take_sample
from groupflow.store.client import StoreClient

log = structlog.get_logger("groupflow.sample")


async def sample(client: StoreClient, latencies: Latencies) -> float:
    """Take a sample; the daemon that begins an interval also surveys for the longest lanes.

    Returns the seconds until the next one.
    """
    if await take_sample(client, latencies):
        await survey(client)
    return INTERVAL
