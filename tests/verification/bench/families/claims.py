"""backlog, tenants: what a claim costs where many tasks wait, and what a waiting task weighs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import quantiles
from time import perf_counter

from groupflow.core.limits import Limits, TenantLimit
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival
from groupflow.store.limits import pack
from groupflow.store.sessions import Session, Sessions, start
from groupflow.store.settlements import Complete, Settlement
from tests.verification.bench.bench import Bench, Stopwatch, Turn
from tests.verification.bench.filling import arrival, arrivals_of, enqueue_all, store_client
from tests.verification.bench.load import Load
from tests.verification.bench.rows import OURS, Goal, Row

SMALL, LARGE, QUICK_LARGE = 1_000, 1_000_000, 100_000
FEW = f"{SMALL:,} waiting"
WORKERS = 16
EXCHANGES, QUICK_EXCHANGES = 3_000, 1_000  # a turn
TENANTS, FEW_TENANTS = 10_000, 100
GROUPS = 2  # of each tenant
AT_ONCE = 500  # slots of a claim


@dataclass(slots=True)
class Store:
    """A store in which tasks wait.

    Attributes:
        client: of the store.
        tasks: how many wait.
        arrivals: they.
        share: of them, those that may be claimed in whole exchanges.
        capped: tenants that may run one task, and do: each other one of those numbered from 0.
    """

    client: StoreClient
    tasks: int
    arrivals: Callable[[], Iterable[Arrival]]
    share: float = 1.0
    capped: int = 0
    left: int = 0  # exchanges until it is filled anew

    async def fill(self) -> None:
        """Let all tasks wait, and nothing else; each capped tenant runs one."""
        await self.client.erase_namespace()
        holder = await self._claims("holder")
        await enqueue_all(self.client, self.arrivals())
        held = 0
        while held < self.capped:
            most = min(AT_ONCE, 2 * (self.capped - held))
            given = (await holder.exchange([], [f"{held}.{n}" for n in range(most)])).claims
            free = [claim for claim in given if int(claim.task.tenant or 0) % 2]
            held += len(given) - len(free)
            await holder.exchange([Complete(claim) for claim in free], [])
        # Half of it at most: while only the hot group is left, one claim a trip is all there is.
        self.left = round(self.tasks * self.share) // WORKERS // 2

    async def exchanges(self, wanted: int) -> list[float]:
        """Seconds of so many exchanges; the store is filled anew whenever half of it is gone."""
        times: list[float] = []
        while len(times) < wanted:
            if not self.left:
                await self.fill()
            most = min(self.left, wanted - len(times))
            times += await self._exchange(most)
            self.left -= most
        return times

    async def overhead(self, body: int) -> float:
        """Bytes of Redis memory a waiting task, above its body, of a store that is filled now."""
        await enqueue_all(
            self.client, arrivals_of(Load(500, 10))
        )  # a fresh server pays for its first memory
        await self.client.erase_namespace()
        before = await self._memory()
        await enqueue_all(self.client, self.arrivals())
        return (await self._memory() - before) / self.tasks - body

    async def _memory(self) -> int:
        return int((await self.client.info("memory"))["used_memory"])

    async def _claims(self, name: str) -> Claims:
        """Those of a new process, which replaces the last one of its name."""
        session = Session(name)
        session.process = await start([self.client])
        limits = pack(Limits(tenants={f"{2 * n}": TenantLimit(1) for n in range(self.capped)}))
        await Sessions(self.client, session, 3600.0, limits=lambda: limits).register({})
        return Claims(self.client, session, "grouped")

    async def _exchange(self, most: int) -> list[float]:
        claims, times = await self._claims("bench"), list[float]()
        idle = [f"grouped-{number}" for number in range(WORKERS)]
        finished: list[Settlement] = []
        for _ in range(most):
            began = perf_counter()
            given = (await claims.exchange(finished, idle)).claims
            times.append(perf_counter() - began)
            assert not self.capped or len(given) == WORKERS, "the market is sold out"
            finished = [Complete(claim) for claim in given]
        await claims.exchange(finished, [])
        return times


@asynccontextmanager
async def _even(bench: Bench, load: Load) -> AsyncIterator[Store]:
    """A load waits, whose hot group is of no use to many workers."""
    async with bench.redis() as (server, _), store_client(server.url) as client:
        yield Store(client, load.tasks, partial(arrivals_of, load), 1 - load.hot)


@asynccontextmanager
async def _market(bench: Bench, tasks: int, tenants: int) -> AsyncIterator[Store]:
    """Tenants wait, every other one of which is at its cap."""

    def arrivals() -> Iterator[Arrival]:
        for number, group, body in Load(tasks, tenants * GROUPS):
            of = group % tenants
            yield arrival(number, f"g{group}", body, f"{of}", f"{of:08x}")

    async with bench.redis() as (server, _), store_client(server.url, "tenants") as client:
        yield Store(client, tasks, arrivals, 0.5, tenants // 2)


async def backlog(bench: Bench) -> AsyncIterator[Row]:
    """Measure the rows of one tenant's tasks."""
    large = bench.pick(LARGE, QUICK_LARGE)
    for hot, shape in ((0.0, "even"), (0.5, "half hot")):
        key = f"backlog.{shape.split()[0]}"
        if bench.wants(key):
            title = f"claim at {large:,} waiting, {shape}, p99"
            async with (
                _even(bench, Load(large, 1_000, hot)) as many,
                _even(bench, Load(SMALL, 1_000, hot)) as few,
            ):
                yield await _claim(bench, key, title, many, few)
    memory = Row("backlog.memory", "Redis memory per waiting task above its body", "bytes")
    memory.goal, memory.is_checked = Goal("≤ 250 bytes", 250.0, least=False), False
    memory.off = "no daemon: tasks written straight into Redis"
    if bench.wants(memory.key):
        watch, load = Stopwatch(), Load(large, 1_000)
        async with _even(bench, load) as store:
            memory.rounds = [watch.round({OURS: await store.overhead(load.body)})]
        yield memory


async def tenants(bench: Bench) -> AsyncIterator[Row]:
    """Measure the row of tenants, half of which may start nothing."""
    key, large = "tenants.capped", bench.pick(LARGE, QUICK_LARGE)
    if bench.wants(key):
        title = f"claim at {large:,} waiting of {TENANTS:,} tenants, half at their cap, p99"
        async with (
            _market(bench, large, TENANTS) as many,
            _market(bench, SMALL, FEW_TENANTS) as few,
        ):
            yield await _claim(bench, key, title, many, few)


async def _claim(bench: Bench, key: str, title: str, many: Store, few: Store) -> Row:
    """The worst of a hundred exchanges, with many waiting and with few, in stores of their own."""
    row = Row(key, title, "ms", Goal(f"≤ 1.5 times at {FEW}", 1.5, least=False), FEW)
    row.off, row.is_checked = f"no daemon: {WORKERS} claims an exchange, one after another", False

    async def one(store: Store) -> Turn:
        times = await store.exchanges(bench.pick(EXCHANGES, QUICK_EXCHANGES))
        return Turn({key: quantiles(times, n=100)[98] * 1000})

    for store in (many, few):
        await store.fill()
    await bench.take_turns([row], {OURS: partial(one, many), FEW: partial(one, few)})
    return row
