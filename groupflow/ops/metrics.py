"""The metrics as Prometheus scrapes them.

A scrape reads the counts of the daemon's parts, and asks the store for its totals: a few scripts a
partition, of constant cost, at most once a second for all scrapes together. If Redis, or a
partition, is away, the scrape says so within a second, with the totals read last.
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
from groupflow.operate.pools import PoolStatus, read_pools
from groupflow.operate.schedules import Schedule, read_schedules
from groupflow.operate.totals import Totals, read_totals
from groupflow.operate.whole.figures import sum_of
from groupflow.operate.whole.namespace import Namespace
from groupflow.operate.whole.pools import sum_of_pools
from groupflow.ops import families
from groupflow.ops.loop_lag import LoopLag
from groupflow.store.client import StoreClient

CONTENT_TYPE = CONTENT_TYPE_LATEST
FRESH = 1.0  # seconds for which a scrape reuses what it read from the store
READING = 1.0  # seconds that the store has for its answer


async def _look(client: StoreClient) -> tuple[Totals, list[Schedule], list[PoolStatus]]:
    pools = (await read_pools(client, workers=0)).pools
    return await read_totals(client), await read_schedules(client), pools


class StoreMetrics:
    """Metrics of the store, and of the process; any process has them."""

    def __init__(self, namespace: Namespace) -> None:
        """Reads nothing yet; the namespace should have connections of its own."""
        self._namespace = namespace
        self._totals: dict[int, Totals] = {}  # each partition's last
        self._schedules: dict[int, list[Schedule]] = {}  # each partition's last
        self._pools: dict[int, list[PoolStatus]] = {}  # each partition's last
        self._read: dict[int, float] = {}  # when that was
        self._asked = float("-inf")
        self._up: set[int] = set()  # the partitions that answered when last asked
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
                found = (await self._namespace.ask_all(_look, READING)).by_partition
            except (GroupflowError, TimeoutError, ValueError):
                # Away, or another program wrote to our keys: the scrape tells the rest.
                found = {}
            self._asked = monotonic()
            self._up = {*found}
            self._totals |= {number: totals for number, (totals, _, _) in found.items()}
            self._schedules |= {number: schedules for number, (_, schedules, _) in found.items()}
            self._pools |= {number: pools for number, (_, _, pools) in found.items()}
            self._read |= dict.fromkeys(found, self._asked)

    def _collect(self) -> Iterator[Metric]:
        yield families.build_info()
        yield from self._own()
        age = None
        if self._totals:
            age = monotonic() - min(self._read.values())
            yield from families.from_totals(sum_of(self._totals, []))
            every = [each for part in self._schedules.values() for each in part]
            yield from families.from_schedules(every)
            pools = sum_of_pools(each for part in self._pools.values() for each in part)
            yield from families.from_pools(pools.values())
        yield from families.of_store(is_up=bool(self._up), age=age)
        if (count := len(self._namespace)) > 1:
            up = {number: number in self._up for number in range(count)}
            yield from families.of_partitions(up, self._totals)

    def _own(self) -> Iterator[Metric]:
        """Metrics of the process's own parts."""
        yield from ()


class Metrics(StoreMetrics):
    """All of a daemon's metrics; `render` gives them to a scrape."""

    def __init__(
        self,
        measures: Measures,
        vitals: Callable[[], Vitals],
        namespace: Namespace,
        *,
        lease: float,
        lag: LoopLag,
    ) -> None:
        """Binds the sources; each scrape asks for the vitals."""
        super().__init__(namespace)
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
