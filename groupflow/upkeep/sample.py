"""sample: keep the totals every ten seconds, so that the page has an hour of them to show."""

from __future__ import annotations

import asyncio

import structlog

from groupflow.core.errors import GroupflowError
from groupflow.operate.sampling import INTERVAL, Latencies, survey, take_sample
from groupflow.store.client import StoreClient

log = structlog.get_logger("groupflow.sample")


class Sampler:
    """Samples once an interval. Any number of daemons may: the script keeps one of all of them."""

    def __init__(self, client: StoreClient, latencies: Latencies) -> None:
        self._client = client
        self._latencies = latencies

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            try:
                await self.run_once()
            except GroupflowError as error:
                log.debug("sample.failed", error=str(error))  # the others say it aloud
            await asyncio.sleep(INTERVAL)

    async def run_once(self) -> bool:
        """One sample; who begins an interval also walks on in search of the longest lanes.

        Returns:
            Whether this one began it.
        """
        is_new = await take_sample(self._client, self._latencies)
        if is_new:
            await survey(self._client)
        return is_new
