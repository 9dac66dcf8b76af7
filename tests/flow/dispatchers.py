"""A dispatcher, what serves it, and workers of few words, for the tests of exchanges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from groupflow.core.errors import StoreUnavailable
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.slots import Slot
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.envelope import Pool
from groupflow.store.settlements import Complete, Settlement
from tests.deadlines import deadline
from tests.store.bench import Daemon


class ListedClaims(Claims):
    """The store's own claims, each exchange noted; the reply of some is lost behind it."""

    def __init__(self, daemon: Daemon, pool: Pool = "grouped") -> None:
        super().__init__(daemon.bench.client, daemon.session, pool)
        self.exchanges: list[tuple[set[str], list[str], set[str]]] = []
        self.lose: set[int] = set()

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str]
    ) -> ExchangeReply:
        number = len(self.exchanges)
        self.exchanges.append(({each.claim.slot for each in settlements}, list(slots), set()))
        answer = await super().exchange(settlements, slots)
        self.exchanges[number][2].update(claim.slot for claim in answer.claims)
        if number in self.lose:
            raise StoreUnavailable("the reply is lost")
        return answer


class Served(Dispatcher):
    """A dispatcher, and what serves it."""

    exchangers: list[Exchanger]


def dispatcher_of(*claims: Claims) -> Served:
    """A dispatcher that these stores serve."""
    dispatcher = Served()
    dispatcher.exchangers = [Exchanger(dispatcher, each) for each in claims]
    return dispatcher


async def run_once(dispatcher: Served) -> None:
    [exchanger] = dispatcher.exchangers
    await exchanger.run_once()


@asynccontextmanager
async def serving(dispatcher: Served) -> AsyncIterator[None]:
    run = asyncio.gather(*(exchanger.run() for exchanger in dispatcher.exchangers))
    try:
        async with asyncio.timeout(deadline()):
            yield
    finally:
        run.cancel()
        await asyncio.wait([run])


async def work(dispatcher: Dispatcher, name: str, ran: list[str], chance: Random) -> None:
    slot: Slot | None = None
    settlement: Settlement | None = None
    while (slot := await dispatcher.next(name, slot, settlement)) is not None:
        ran.append(slot.held.task.id)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        settlement = Complete(slot.held)


class Slow:
    """Handlers that wait for a word, and how many run at a time."""

    def __init__(self) -> None:
        self.running, self.most = 0, 0
        self.may_end = asyncio.Event()

    async def handle(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.may_end.wait()
        self.running -= 1


async def handle(dispatcher: Dispatcher, name: str, quick: int, slow: Slow) -> None:
    """Handle tasks in no time as long as their number is below `quick`."""
    slot: Slot | None = None
    settlement: Settlement | None = None
    while (slot := await dispatcher.next(name, slot, settlement)) is not None:
        if int(slot.held.task.id[1:]) >= quick:
            await slow.handle()
        slot.source.prefetch.handled(1e-4)
        settlement = Complete(slot.held)
