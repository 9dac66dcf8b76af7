"""backlog: what a claim costs with a million tasks waiting, and what a waiting task weighs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from statistics import quantiles
from time import perf_counter

from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.sessions import Session, Sessions
from groupflow.store.settlements import Complete, Settlement
from tests.verification.bench.bench import Bench
from tests.verification.bench.filling import fill_store, store_client
from tests.verification.bench.load import Load
from tests.verification.bench.rounds import Stopwatch, Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

SMALL, LARGE, QUICK_LARGE = 1_000, 1_000_000, 100_000
WORKERS = 16
EXCHANGES, QUICK_EXCHANGES = 3_000, 1_000  # a turn
STRAIGHT = "no daemon: tasks written straight into Redis"


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    large = bench.pick(LARGE, QUICK_LARGE)
    memory = Row("backlog.memory", "Redis memory per waiting task above its body", "bytes")
    memory.goal, memory.is_checked = Goal("≤ 250 bytes", 250.0, least=False), False
    memory.off = STRAIGHT
    for hot, shape in ((0.0, "even"), (0.5, "half hot")):
        key = f"backlog.{shape.split()[0]}"
        if bench.wants(key):
            yield await _claim(bench, key, Load(large, 1_000, hot), shape)
    if bench.wants(memory.key):
        watch = Stopwatch()
        async with _store(bench, Load(large, 1_000)) as store:
            memory.rounds = [watch.round({OURS: store.overhead})]
        yield memory


async def _claim(bench: Bench, key: str, load: Load, shape: str) -> Row:
    """The worst of a hundred exchanges, with many waiting and with few, in stores of their own."""
    few = f"{SMALL:,} waiting"
    row = Row(key, f"claim at {load.tasks:,} waiting, {shape}, p99", "ms", beside=few)
    row.goal = Goal(f"≤ 1.5 times at {few}", 1.5, least=False)
    row.off, row.is_checked = f"no daemon: {WORKERS} claims an exchange, one after another", False
    async with (
        _store(bench, load) as large,
        _store(bench, Load(SMALL, 1_000, load.hot)) as small,
    ):

        async def one(store: _Store) -> Turn:
            times = await store.exchanges(bench.pick(EXCHANGES, QUICK_EXCHANGES))
            return Turn({key: quantiles(times, n=100)[98] * 1000})

        await take_turns(bench, [row], {OURS: partial(one, large), few: partial(one, small)})
    return row


class _Store:
    """A store with tasks that wait.

    Attributes:
        overhead: bytes of Redis memory a waiting task, above its body.
    """

    def __init__(self, url: str, client: StoreClient, load: Load) -> None:
        self._url, self._client, self._load = url, client, load
        self._left = 0
        self.overhead = 0.0

    async def fill(self) -> None:
        """Let the whole load wait, and nothing else."""
        await self._client.erase_namespace()
        before = (await self._client.info("memory"))["used_memory"]
        await fill_store(self._url, self._load)
        memory = (await self._client.info("memory"))["used_memory"] - before
        self.overhead = memory / self._load.tasks - self._load.body
        # While only the hot group is left, one claim a trip is all there is: stop before it.
        self._left = round(self._load.tasks * (1 - self._load.hot)) // WORKERS // 2

    async def exchanges(self, wanted: int) -> list[float]:
        """Seconds of so many exchanges; the store is filled anew whenever half of it is gone."""
        times: list[float] = []
        while len(times) < wanted:
            if not self._left:
                await self.fill()
            most = min(self._left, wanted - len(times))
            times += await _exchange(self._client, most)
            self._left -= most
        return times


@asynccontextmanager
async def _store(bench: Bench, load: Load) -> AsyncIterator[_Store]:
    async with bench.redis() as (server, _):
        client = store_client(server.url)
        try:
            await fill_store(server.url, Load(500, 10))  # a fresh server pays for its first memory
            store = _Store(server.url, client, load)
            await store.fill()
            yield store
        finally:
            await client.close()


async def _exchange(client: StoreClient, most: int) -> list[float]:
    session = Session("bench")
    await Sessions(client, session, 600.0).register({})
    claims = Claims(client, session, "grouped")
    idle = [f"grouped-{number}" for number in range(WORKERS)]
    finished: list[Settlement] = []
    times: list[float] = []
    for _ in range(most):
        began = perf_counter()
        given = (await claims.exchange(finished, idle)).claims
        times.append(perf_counter() - began)
        finished = [Complete(claim) for claim in given]
    await claims.exchange(finished, [])
    return times
