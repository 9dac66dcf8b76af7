"""Workers on claims of the real store, and how a test follows, holds and loses their calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from groupflow import App, Task
from groupflow.core.errors import StoreUnavailable
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.python_handlers import PythonRunners
from groupflow.flow.slots import Slot
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.settings.model import RetryDefaults, Settings
from groupflow.settings.rules import GroupRule
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope, Pool
from groupflow.store.settlements import Proceed, Settlement, one_by_one
from tests.deadlines import deadline, until
from tests.store.bench import Bench, Daemon
from tests.turns import turns

Work: TypeAlias = Callable[[Task], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Noted:
    """An exchange: what it settled, the slots that it asked for, and those that got claims."""

    settled: list[Settlement]
    asked: list[str]
    came: list[str]


class NotedClaims(Claims):
    """The store's own claims, each call noted; the reply of some is held, or lost behind it.

    Attributes:
        exchanges: all of them.
        told: how often a run was told of that goes on.
        accepted: what was settled, as far as the daemon heard of it; of runs task by task.
        lose: the calls, counted from 0, whose reply is lost.
        fits: how many claims a reply may have; with more it is lost.
        calls: how many there were.
        may_answer: no reply comes before this is set.
    """

    def __init__(self, daemon: Daemon, pool: Pool = "grouped") -> None:
        super().__init__(daemon.bench.client, daemon.session, pool)
        self.exchanges: list[Noted] = []
        self.told = 0
        self.accepted: list[Settlement] = []
        self.lose: set[int] = set()
        self.fits = 10**6
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.calls = 0

    async def _answer(self, number: int, came: int) -> None:
        self.calls += 1
        await self.may_answer.wait()
        if number in self.lose or came > self.fits:
            raise StoreUnavailable("the reply is lost")

    async def exchange(
        self, settlements: Sequence[Settlement], slots: Sequence[str], beyond: int = 0
    ) -> ExchangeReply:
        number = self.calls
        answer = await super().exchange(settlements, slots, beyond)
        came = [claim.slot for claim in answer.claims]
        self.exchanges.append(Noted(list(settlements), list(slots), came))
        self.told += sum(isinstance(each, Proceed) and bool(each.following) for each in settlements)
        await self._answer(number, len(came))
        self.accepted += one_by_one([each for each in settlements if each not in answer.refused])
        return answer


class Hand:
    """A worker of a test's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._turn: asyncio.Future[Slot | None]

    async def next(
        self,
        dispatcher: Dispatcher,
        slot: Slot | None = None,
        settlement: Settlement | None = None,
    ) -> Slot | None:
        """Hand in what it has, and wait for its next slot; ``None`` where none comes any more."""
        self._turn = asyncio.get_running_loop().create_future()
        if slot is None:
            dispatcher.join(self)
        else:
            dispatcher.hand_in(self, slot, settlement)
        try:
            return await self._turn
        except asyncio.CancelledError:
            dispatcher.leave(self)
            raise

    def begin(self, slot: Slot) -> None:
        self._come(slot)

    def go(self) -> None:
        self._come(None)

    def _come(self, slot: Slot | None) -> None:
        if not self._turn.done():  # else its test is over
            self._turn.set_result(slot)


class Crew:
    """Workers, and what serves them; by hand, a test makes each exchange and is each worker."""

    def __init__(
        self, bench: Bench, daemon: Daemon, app: App, count: int, pool: Pool, **facts: Any
    ) -> None:
        tracing, unknown_for = facts.pop("tracing", None), facts.pop("unknown_for", 0.0)
        rule = GroupRule.model_validate({"name": "rule", "key": "{k}", **facts})
        settings = Settings(retry=RetryDefaults(max_attempts=3, interval=-1), groups=(rule,))
        self.bench, self.daemon = bench, daemon
        self.claims = NotedClaims(daemon, pool)
        self.dispatcher = Dispatcher()
        self.holds_lease = True
        self.exchanger = Exchanger(self.dispatcher, self.claims, lambda: self.holds_lease)
        self.exchanger.adopt(settings.policies().runs)
        self.prefetch = self.exchanger.prefetch
        self.threads = ThreadPoolExecutor(max(1, count))
        runners = PythonRunners(app, self.threads)
        self.rules = Rules(runners, settings.policies(), 3, daemon="d1", unknown_for=unknown_for)
        names = [f"w-{n}" for n in range(count)]
        self.workers = [LocalWorker(name, self.dispatcher, self.rules, tracing) for name in names]
        self.running: list[asyncio.Task[None]] = []
        self.ran: list[str] = []  # without an application of the test's own

    def asked(self) -> list[int]:
        """How many claims each exchange asked for."""
        return [len(each.asked) for each in self.claims.exchanges]

    def came(self) -> list[int]:
        """How many claims each exchange brought."""
        return [len(each.came) for each in self.claims.exchanges]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, as a call to the store may have made it."""
        await until(condition, look=0.001)

    @property
    def kinds(self) -> list[type[Settlement]]:
        """What was accepted as settled, in order, by the ways to settle."""
        return [type(each) for each in self.claims.accepted]

    async def until_settled(self, number: int) -> None:
        """Wait until so many tasks are settled, in any way."""
        await self.until(lambda: len(self.claims.accepted) >= number)

    async def until_done(self, number: int) -> None:
        """Wait until so many tasks are done, as the store counts them."""
        await until(lambda: self.bench.count("done") >= number)

    async def stop(self) -> None:
        """End as a daemon does: claim no more, and let what runs end."""
        self.dispatcher.stop_claiming()
        await asyncio.wait_for(asyncio.gather(*self.running), deadline())

    async def end(self, number: int) -> None:
        """Wait until so many tasks are settled, in any way, and end."""
        await self.until_settled(number)
        await self.stop()

    async def finish(self, number: int) -> None:
        """The same with tasks that are done, as the store counts them."""
        await self.until_done(number)
        await self.stop()

    async def waiting(
        self, name: str, slot: Slot | None = None, settlement: Settlement | None = None
    ) -> asyncio.Task[Slot | None]:
        """A worker of the test's, that has come to wait for its next claim."""
        hand = Hand(name)
        waits = asyncio.create_task(hand.next(self.dispatcher, slot, settlement))
        await turns()
        return waits

    async def next(
        self, name: str, slot: Slot | None = None, settlement: Settlement | None = None
    ) -> Slot:
        """The same, served by one exchange."""
        waits = await self.waiting(name, slot, settlement)
        if not waits.done():
            await self.exchanger.run_once()
        found = await waits
        assert found is not None
        return found


def _noting(ran: list[str], work: Work | None) -> App:
    """An application whose tasks of type ``t`` are noted, and done by some work, or at once."""
    app = App()

    @app.handler("t")
    async def handle(task: Task) -> Any:
        ran.append(task.id)
        return await work(task) if work else None

    return app


@asynccontextmanager
async def crew(
    bench: Bench,
    app: App | Work | None = None,
    *,
    count: int = 1,
    daemon: Daemon | None = None,
    pool: Pool = "grouped",
    by_hand: bool = False,
    **facts: Any,
) -> AsyncIterator[Crew]:
    """Workers, ended when the block is; `facts` are the rule's of all tasks, and limits.

    In place of an application there may be only what the handler of type ``t`` does.
    """
    daemon = daemon or await bench.daemon()
    ran = list[str]()
    app = app if isinstance(app, App) else _noting(ran, app)
    made = Crew(bench, daemon, app, 0 if by_hand else count, pool, **facts)
    made.ran = ran
    made.running = [asyncio.create_task(each.run()) for each in made.workers]
    serving = [] if by_hand else [asyncio.create_task(made.exchanger.run())]
    try:
        yield made
    finally:
        for each in (*made.running, *serving):
            each.cancel()
        await asyncio.gather(*made.running, *serving, return_exceptions=True)
        made.threads.shutdown()


def named(id_: str, type_: str = "t") -> Arrival:
    """A plain message of a type."""
    return Arrival(id_, Envelope(type_, None, "42", None, {}, b"{}"))


class Gate:
    """Handlers that begin, say so, and end when they may."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def passed(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.reached.set()
        await self.opened.wait()
        self.running -= 1

    async def until_reached(self) -> None:
        await asyncio.wait_for(self.reached.wait(), deadline())


def quick(number: int, gate: Gate) -> Work:
    """Work of which so many attempts are quick; all others wait at the gate."""
    begun = count(1)

    async def work(_: Task) -> None:
        if next(begun) > number:
            await gate.passed()

    return work


def in_order(ran: Sequence[str], groups: int, of: int) -> bool:
    """Whether all tasks ran once, those of each group (a number modulo `groups`) in order."""
    numbers = [int(id_[1:]) for id_ in ran]
    return sorted(numbers) == list(range(of)) and all(
        (found := [n for n in numbers if n % groups == group]) == sorted(found)
        for group in range(groups)
    )
