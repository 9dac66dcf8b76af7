"""backlog: what a claim costs with a million tasks waiting, and what a waiting task weighs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.sessions import Session, Sessions
from groupflow.store.settlements import Complete, Settlement
from tests.bench.bench import Bench
from tests.bench.filling import fill_store, store_client
from tests.bench.load import Load
from tests.bench.rows import Goal, Row

SMALL, LARGE, QUICK_LARGE = 1_000, 1_000_000, 100_000
WORKERS = 16
EXCHANGES = 1_500  # a round
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class _Measured:
    times: list[float]
    overhead: float  # bytes of Redis memory a waiting task, above its body

    @property
    def p99(self) -> float:
        """Milliseconds; the median of the rounds', since the worst of each are the machine's."""
        rounds = (self.times[at : at + EXCHANGES] for at in range(0, len(self.times), EXCHANGES))
        return median(quantiles(each, n=100)[98] for each in rounds) * 1000


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows."""
    large = bench.pick(LARGE, QUICK_LARGE)
    overhead = 0.0
    for hot, shape in ((0.0, "even"), (0.5, "half hot")):
        small = await _measure(bench, Load(SMALL, 1_000, hot))
        big = await _measure(bench, Load(large, 1_000, hot))
        overhead = overhead or big.overhead
        share = big.p99 / small.p99
        row = Row(f"backlog.{shape.split()[0]}", f"claim at {large:,} waiting, {shape}, p99",
                  big.p99, "ms", share)  # fmt: skip
        row.goal = Goal(f"≤ 1.5 times at {SMALL:,} waiting", 1.5, least=False)
        row.beside, row.guard = f"{SMALL:,} waiting", 1 / share
        row.peers[f"{SMALL:,} waiting"] = small.p99
        row.is_checked = False
        yield row
    row = Row(
        "backlog.memory",
        "Redis memory per waiting task above its body",
        overhead,
        "bytes",
        overhead,
    )
    row.goal, row.guard = Goal("≤ 250 bytes", 250.0, least=False), 1 / overhead
    row.is_checked = False
    yield row


async def _measure(bench: Bench, load: Load) -> _Measured:
    """Settle and claim for all workers at once, again and again, with the store kept that full.

    A small store is filled anew whenever half of it is gone, so that both give as many figures.
    """
    times: list[float] = []
    wanted = EXCHANGES * bench.pick(ROUNDS, 1)
    async with bench.redis() as (server, _):
        client = store_client(server.url)
        try:
            await fill_store(server.url, Load(500, 10))  # a fresh server pays for its first memory
            await client.erase_namespace()
            before = (await client.info("memory"))["used_memory"]
            await fill_store(server.url, load)
            memory = (await client.info("memory"))["used_memory"] - before
            # While only the hot group is left, one claim a trip is all there is: stop before it.
            each = min(wanted, round(load.tasks * (1 - load.hot)) // WORKERS // 2)
            while True:
                times += await _exchange(client, each)
                if len(times) >= wanted:
                    return _Measured(times[:wanted], memory / load.tasks - load.body)
                await client.erase_namespace()
                await fill_store(server.url, load)
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
        _, given = await claims.exchange(finished, idle)
        times.append(perf_counter() - began)
        finished = [Complete(claim) for claim in given]
    await claims.exchange(finished, [])
    return times
