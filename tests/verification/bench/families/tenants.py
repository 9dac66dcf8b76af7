"""tenants: what a claim costs where many tenants wait, and half of them may start nothing."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from statistics import quantiles
from time import perf_counter

from groupflow.core.limits import Limits, TenantLimit
from groupflow.store.claims import Claims
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.limits import pack
from groupflow.store.sessions import Session, Sessions, start
from groupflow.store.settlements import Complete, Settlement
from tests.verification.bench.bench import Bench
from tests.verification.bench.filling import BATCH, RULE, store_client
from tests.verification.bench.load import Load
from tests.verification.bench.rounds import Turn, take_turns
from tests.verification.bench.rows import OURS, Goal, Row

SMALL, LARGE, QUICK_LARGE = 1_000, 1_000_000, 100_000
TENANTS, FEW_TENANTS = 10_000, 100
GROUPS = 2  # of each tenant
WORKERS = 16
EXCHANGES, QUICK_EXCHANGES = 3_000, 1_000  # a turn
AT_ONCE = 500  # slots of a claim


async def run(bench: Bench) -> AsyncIterator[Row]:
    """Measure the row."""
    key = "tenants.capped"
    if not bench.wants(key):
        return
    large = bench.pick(LARGE, QUICK_LARGE)
    few = f"{SMALL:,} waiting"
    text = f"claim at {large:,} waiting of {TENANTS:,} tenants, half at their cap, p99"
    row = Row(key, text, "ms", beside=few)
    row.goal = Goal(f"≤ 1.5 times at {few}", 1.5, least=False)
    row.off, row.is_checked = f"no daemon: {WORKERS} claims an exchange, one after another", False
    async with (
        _market(bench, large, TENANTS) as many,
        _market(bench, SMALL, FEW_TENANTS) as small,
    ):

        async def one(market: _Market) -> Turn:
            times = await market.exchanges(bench.pick(EXCHANGES, QUICK_EXCHANGES))
            return Turn({key: quantiles(times, n=100)[98] * 1000})

        await take_turns(bench, [row], {OURS: partial(one, many), few: partial(one, small)})
    yield row


class _Market:
    """A store in which tenants wait, every other one of which is at its cap."""

    def __init__(self, client: StoreClient, tasks: int, tenants: int) -> None:
        self._client, self._tasks, self._tenants = client, tasks, tenants
        self._left = 0
        capped = {f"{n}": TenantLimit(1) for n in range(0, tenants, 2)}
        self._limits = pack(Limits(tenants=capped))

    async def fill(self) -> None:
        """Let all tasks wait; each capped tenant runs one."""
        await self._client.erase_namespace()
        session = Session("holder")
        await self._sessions(session).register({})
        waiting = iter(self._arrivals())
        while batch := list(itertools.islice(waiting, BATCH)):
            await Enqueuer(self._client).enqueue(batch)
        await self._hold(Claims(self._client, session, "grouped"))
        self._left = self._tasks // 2 // WORKERS // 2

    async def _hold(self, claims: Claims) -> None:
        """Run one task of each capped tenant; what else comes is done."""
        held = 0
        while held < self._tenants // 2:
            most = min(AT_ONCE, 2 * (self._tenants // 2 - held))
            given = (await claims.exchange([], [f"{held}.{n}" for n in range(most)])).claims
            free = [claim for claim in given if int(claim.task.tenant or 0) % 2]
            held += len(given) - len(free)
            await claims.exchange([Complete(claim) for claim in free], [])

    def _sessions(self, session: Session) -> Sessions:
        return Sessions(self._client, session, 3600.0, limits=lambda: self._limits)

    def _arrivals(self) -> Iterator[Arrival]:
        load = Load(self._tasks, self._tenants * GROUPS)
        for number, group, body in load:
            tenant = group % self._tenants
            scope = f"{tenant:08x}"
            envelope = Envelope("bench", f"g{group}", f"{tenant}", RULE, {}, body, scope)
            yield Arrival(f"{number:032d}", envelope)

    async def exchanges(self, wanted: int) -> list[float]:
        """Seconds of so many exchanges; the store is filled anew whenever half of it is gone."""
        times: list[float] = []
        while len(times) < wanted:
            if not self._left:
                await self.fill()
            most = min(self._left, wanted - len(times))
            times += await self._exchange(most)
            self._left -= most
        return times

    async def _exchange(self, most: int) -> list[float]:
        session = Session("bench")
        session.process = await start([self._client])  # it replaces the one before
        await self._sessions(session).register({})
        claims = Claims(self._client, session, "grouped")
        idle = [f"grouped-{number}" for number in range(WORKERS)]
        finished: list[Settlement] = []
        times: list[float] = []
        for _ in range(most):
            began = perf_counter()
            given = (await claims.exchange(finished, idle)).claims
            times.append(perf_counter() - began)
            assert len(given) == WORKERS, "the market is sold out"
            finished = [Complete(claim) for claim in given]
        await claims.exchange(finished, [])
        return times


@asynccontextmanager
async def _market(bench: Bench, tasks: int, tenants: int) -> AsyncIterator[_Market]:
    async with bench.redis() as (server, _):
        client = store_client(server.url, "tenants")
        try:
            market = _Market(client, tasks, tenants)
            await market.fill()
            yield market
        finally:
            await client.close()
