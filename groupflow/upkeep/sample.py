"""sample: keep the totals every ten seconds, so that the page has an hour of them to show."""

from __future__ import annotations

import structlog

from groupflow.operate.sampling import INTERVAL, Latencies, survey, take_sample
from groupflow.store.client import StoreClient
from groupflow.upkeep.duty import Duty

log = structlog.get_logger("groupflow.sample")


class Sampler(Duty):
    """Samples once an interval; the script keeps one of all daemons."""

    name = "sample"
    again = INTERVAL

    def __init__(self, client: StoreClient, latencies: Latencies) -> None:
        super().__init__()
        self._client = client
        self._latencies = latencies

    def failed(self, error: Exception) -> float:
        """Say nothing aloud: the others do that."""
        log.debug("sample.failed", error=str(error))
        return self.again

    async def run_once(self) -> float:
        """One sample; who begins an interval also walks on in search of the longest lanes."""
        if await take_sample(self._client, self._latencies):
            await survey(self._client)
        return INTERVAL
