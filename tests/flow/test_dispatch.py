"""The dispatcher: who travels together, and that nobody waits for what could be claimed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.flow.dispatch import Dispatcher
from groupflow.servers import RedisServer
from groupflow.store.claims import Claims
from groupflow.store.settlements import Claim, Complete, Settlement
from tests.store.bench import Bench, Daemon, arrival

DEADLINE = 30.0


class ListedClaims(Claims):
    """The store's own claims, each exchange noted; the reply of some is lost behind it."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon.bench.client, daemon.session, "grouped")
        self.exchanges: list[tuple[set[str], list[str], set[str]]] = []
        self.lose: set[int] = set()

    async def exchange(
        self, settlements: Sequence[Settlement], idle: Sequence[str]
    ) -> tuple[list[Settlement], list[Claim]]:
        number = len(self.exchanges)
        self.exchanges.append(({each.claim.worker for each in settlements}, list(idle), set()))
        refused, claims = await super().exchange(settlements, idle)
        self.exchanges[number][2].update(claim.worker for claim in claims)
        if number in self.lose:
            raise StoreUnavailable("the reply is lost")
        return refused, claims


@pytest.fixture
async def bench(redis_server: RedisServer) -> AsyncIterator[Bench]:
    bench = Bench(redis_server.url)
    try:
        yield bench
        assert bench.audit() == []
    finally:
        await bench.close()


@asynccontextmanager
async def serving(dispatcher: Dispatcher) -> AsyncIterator[None]:
    run = asyncio.create_task(dispatcher.run())
    try:
        async with asyncio.timeout(DEADLINE):
            yield
    finally:
        run.cancel()
        await asyncio.wait([run])


async def _work(dispatcher: Dispatcher, name: str, ran: list[str], chance: Random) -> None:
    settlement: Settlement | None = None
    while (claim := await dispatcher.next_claim(name, settlement)) is not None:
        ran.append(claim.task.id)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        settlement = Complete(claim)


async def _drain(bench: Bench, claims: ListedClaims, workers: int, tasks: int) -> list[str]:
    """Run workers, without a single wake, until so many tasks are settled."""
    dispatcher, ran, chance = Dispatcher(claims), list[str](), Random(7)
    async with serving(dispatcher):
        running = [
            asyncio.create_task(_work(dispatcher, f"w-{n}", ran, chance)) for n in range(workers)
        ]
        while bench.count("done") < tasks:
            await asyncio.sleep(0.01)
        dispatcher.stop_claiming()
        await asyncio.wait(running)
    return ran


@pytest.mark.parametrize("workers", [1, 2, 5, 16])
@pytest.mark.parametrize("groups", [1, 3, 40])
async def test_all_is_claimed_without_a_wake(bench: Bench, workers: int, groups: int) -> None:
    """Whoever settles claims what that frees: nothing waits for a wake that nobody owes it."""
    tasks = [arrival(f"t{n}", f"g{n % groups}") for n in range(200)]
    await bench.enqueue(*tasks)
    claims = ListedClaims(await bench.daemon())
    ran = await _drain(bench, claims, workers, 200)
    assert len(ran) == len(set(ran)) == 200
    for group in range(groups):
        numbers = [int(id_[1:]) for id_ in ran if int(id_[1:]) % groups == group]
        assert numbers == sorted(numbers)


async def test_a_hot_group_costs_one_small_exchange_a_task(bench: Bench) -> None:
    """While only one group has work, the idle don't ask again and again."""
    await bench.enqueue(*(arrival(f"t{n}", "hot") for n in range(100)))
    claims = ListedClaims(await bench.daemon())
    assert len(await _drain(bench, claims, 16, 100)) == 100
    asked = sum(len(idle) for _, idle, _ in claims.exchanges)
    assert asked < 100 + 4 * 16


async def test_a_worker_never_asks_ahead_of_its_settlement(bench: Bench) -> None:
    """Its last claim would be handed to it again, and run twice."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % 20}") for n in range(300)))
    claims = ListedClaims(await bench.daemon())
    ran = await _drain(bench, claims, 8, 300)
    assert len(set(ran)) == len(ran) == 300
    holds: set[str] = set()
    for settled, idle, served in claims.exchanges:
        assert not set(idle) & holds - settled
        holds = holds - settled | served


async def test_lost_replies_cost_nothing(bench: Bench) -> None:
    """Settlements and claims whose reply is lost go into another exchange, and count once."""
    await bench.enqueue(*(arrival(f"t{n}", f"g{n % 10}") for n in range(60)))
    claims = ListedClaims(await bench.daemon())
    claims.lose = {0, 3, 4, 9}
    ran = await _drain(bench, claims, 6, 60)
    assert len(ran) == len(set(ran)) == 60


async def test_a_retiring_worker_first_finds_out_what_it_holds(bench: Bench) -> None:
    """Its claim's reply was lost: it must not go while the store says that it runs a task."""
    await bench.enqueue(arrival("t0", "a"))
    claims = ListedClaims(await bench.daemon())
    claims.lose = {0}
    dispatcher, ran = Dispatcher(claims), list[str]()
    worker = asyncio.create_task(_work(dispatcher, "w-0", ran, Random(1)))
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await dispatcher.run_once()
    dispatcher.retire({"w-0"})
    async with serving(dispatcher):
        await worker
    assert ran == ["t0"]
    assert bench.count("done") == 1
