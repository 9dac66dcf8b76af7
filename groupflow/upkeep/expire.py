"""expire: ends tasks that had to start by now, and have not. `promote` says when there are some."""

from __future__ import annotations

from math import inf
from time import monotonic

import structlog

from groupflow.core.measures import UpkeepMeasures
from groupflow.store.client import StoreClient
from groupflow.store.scripts import Verb

log = structlog.get_logger("groupflow.expire")

AT_ONCE = 50  # tasks a script: bounds how long one may block Redis
STEPS = 20  # scripts a pass, so that what is delayed needn't wait long
PLACES = 300_000  # of lanes that a script passes by, or as much other work: about 4 ms
TOLD = 1.0  # seconds between two lines of the log


class Expirer:
    """Ends late tasks of a partition; it also tells of those that claims met first and ended."""

    def __init__(self, client: StoreClient, measures: UpkeepMeasures) -> None:
        self._client = client
        self._measures = measures
        self._untold = 0
        self._told_at = -inf

    async def run_once(self) -> None:
        """End some of them."""
        for _ in range(STEPS):
            ended = int(await self._client.run(Verb.EXPIRE, AT_ONCE, PLACES))
            self._measures.expired += ended
            self._untold += ended
            if not ended:
                return

    def tell(self) -> float:
        """Log how many there were, once a second. Returns the seconds until it has to be asked."""
        if not self._untold:
            return inf
        left = self._told_at + TOLD - monotonic()
        if left > 0:
            return left
        log.info("task.expired", count=self._untold)
        self._untold, self._told_at = 0, monotonic()
        return inf
