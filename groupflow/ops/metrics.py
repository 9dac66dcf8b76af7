"""The metrics as Prometheus scrapes them.

A scrape reads what the daemon's parts have counted, and asks the store once for its totals: one
script of constant cost, once a second at most however many scrape. Where Redis is away, the scrape
says so within a second, with those that were last read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from groupflow.core.errors import GroupflowError
from groupflow.core.measures import Measures, Vitals
from groupflow.operate.totals import Totals, read_totals
from groupflow.ops import families
from groupflow.ops.loop_lag import LoopLag
from groupflow.store.client import StoreClient

CONTENT_TYPE = CONTENT_TYPE_LATEST
FRESH = 1.0  # seconds for which what was read from the store is told again
READING = 1.0  # seconds that the store has for its answer


class StoreMetrics:
    """What any process can tell of the store, and of itself as a process."""

    def __init__(self, client: StoreClient) -> None:
        """Reads nothing yet; the client has best a connection of its own."""
        self._client = client
        self._totals: Totals | None = None
        self._read = self._asked = float("-inf")
        self._is_up = False
        self._asking = asyncio.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(self._collect))
        ProcessCollector(registry=self._registry)

    async def render(self) -> bytes:
        """The metrics in Prometheus's text format; raises nothing, and takes `READING` at most."""
        await self._refresh()
        return generate_latest(self._registry)

    async def _refresh(self) -> None:
        async with self._asking:
            if monotonic() - self._asked < FRESH:
                return
            try:
                async with asyncio.timeout(READING):
                    self._totals = await read_totals(self._client)
            except (GroupflowError, TimeoutError, ValueError):
                # Away, or somebody wrote to our keys: the rest can be told all the same.
                self._is_up = False
            else:
                self._is_up, self._read = True, monotonic()
            self._asked = monotonic()

    def _collect(self) -> Iterator[Metric]:
        yield families.build_info()
        yield from self._own()
        age = None
        if self._totals is not None:
            age = monotonic() - self._read
            yield from families.from_totals(self._totals)
        yield from families.of_store(is_up=self._is_up, age=age)

    def _own(self) -> Iterator[Metric]:
        """What the process tells of its own parts."""
        yield from ()


class Metrics(StoreMetrics):
    """All of a daemon's metrics. Mount `render` wherever they are to be scraped."""

    def __init__(
        self,
        measures: Measures,
        vitals: Callable[[], Vitals],
        client: StoreClient,
        *,
        lease: float,
        lag: LoopLag,
    ) -> None:
        """Binds what is told; the vitals are asked for at each scrape."""
        super().__init__(client)
        self._measures = measures
        self._vitals = vitals
        self._lease = lease
        self._lag = lag

    def _own(self) -> Iterator[Metric]:
        yield from families.from_measures(self._measures)
        yield from families.from_vitals(self._vitals(), lease=self._lease, lag=self._lag.worst)


class _Families(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()
