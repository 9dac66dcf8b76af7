"""Workers on hot groups: what they began, in order, and which calls their store got for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from groupflow import App
from groupflow.core.errors import StoreUnavailable
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.python_handlers import PythonRunners
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.settings.model import RetryDefaults, Settings
from groupflow.settings.rules import GroupRule
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed, Settlement
from tests.deadlines import deadline
from tests.store.bench import Bench, Daemon


class HotClaims(Claims):
    """The store's own claims, each call noted; the reply of some is lost behind it."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon.bench.client, daemon.session, "grouped")
        self.hopped = 0  # how often it tried
        self.exchanged = 0
        self.lose: set[int] = set()  # which hop, counted from 1
        self.lose_exchanges: set[int] = set()
        self.settled: list[Settlement] = []
        self.claimed: list[str] = []  # by exchanges, and no more than first tasks of runs
        self.behind: list[int] = []  # how many tasks a run had in hand, each time that one was told
        self.meanwhile: Callable[[], None] = lambda: None

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str]
    ) -> ExchangeReply:
        self.exchanged += 1
        number = self.exchanged
        answer = await super().exchange(settlements, slots)
        self.claimed += [claim.task.id for claim in answer.claims]
        for each in settlements:
            if isinstance(each, Proceed) and each.following:
                given = len(answer.further.get(each.following.slot, ()))
                self.behind.append(each.behind + given)
        if number in self.lose_exchanges:
            raise StoreUnavailable("the reply is lost")
        self.settled += [each for each in settlements if each not in answer.refused]
        return answer

    async def hop(self, settlement: Complete) -> Claim | None:
        self.hopped += 1
        number = self.hopped
        claim = await super().hop(settlement)
        self.meanwhile()
        if number in self.lose:
            raise StoreUnavailable("the reply is lost")
        return claim


class Crew:
    """Workers at their work, and what serves them."""

    def __init__(self, bench: Bench, daemon: Daemon, app: App, count: int, rule: GroupRule) -> None:
        self.bench = bench
        self.daemon = daemon
        self.claims = HotClaims(daemon)
        self.dispatcher = Dispatcher()
        self.holds_lease = True
        self.exchanger = Exchanger(self.dispatcher, self.claims, lambda: self.holds_lease)
        settings = Settings(retry=RetryDefaults(max_attempts=3, interval=-1), groups=(rule,))
        self.exchanger.adopt(settings.policies().runs)
        self.threads = ThreadPoolExecutor(1)
        rules = Rules(PythonRunners(app, self.threads), settings.policies(), 3)
        self.workers = [LocalWorker(f"w-{n}", self.dispatcher, rules) for n in range(count)]
        self.running: list[asyncio.Task[None]] = []

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so in the store."""
        async with asyncio.timeout(deadline()):
            while not condition():
                await asyncio.sleep(0.005)

    async def until_done(self, number: int) -> None:
        """Wait until so many tasks are done, as the store counts them."""
        await self.until(lambda: self.bench.count("done") >= number)

    async def stop(self) -> None:
        """End as a daemon does: claim no more, and let what runs end."""
        self.dispatcher.stop_claiming()
        async with asyncio.timeout(deadline()):
            await asyncio.gather(*self.running)


@asynccontextmanager
async def crew(
    bench: Bench, app: App, *, count: int = 1, daemon: Daemon | None = None, **rule: object
) -> AsyncIterator[Crew]:
    """Workers, ended when the block is; `rule` is what the rule of all tasks says."""
    facts = {"name": "rule", "key": "{k}", **rule}
    made = Crew(bench, daemon or await bench.daemon(), app, count, GroupRule.model_validate(facts))
    made.running = [asyncio.create_task(each.run()) for each in made.workers]
    serving = asyncio.create_task(made.exchanger.run())
    try:
        yield made
    finally:
        for each in (*made.running, serving):
            each.cancel()
        await asyncio.wait([*made.running, serving])
        made.threads.shutdown()
