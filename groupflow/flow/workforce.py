"""A daemon's pools of workers, each of which can grow or shrink at any time, and its claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any, TypeAlias

import structlog

from groupflow.core.tracing import Tracing
from groupflow.flow.byte_semaphore import ByteSemaphore
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.exchange import Exchanger
from groupflow.flow.parts import wait_for
from groupflow.flow.worker import LocalWorker, Rules
from groupflow.store.envelope import Pool

HAND_BACK = 5.0  # seconds for cancelled handlers to end (a stubborn command is killed after 2)

Spawn: TypeAlias = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]

log = structlog.get_logger("groupflow.daemon")


class WorkerPool:
    """The workers of one dispatcher.

    A surplus worker is never cancelled: it ends its task, hands it in, and goes.
    """

    def __init__(
        self,
        name: Pool,
        dispatcher: Dispatcher,
        exchangers: Sequence[Exchanger],
        *,
        rules: Rules,
        size: int,
        tracing: Tracing | None = None,
        room: ByteSemaphore | None = None,
    ) -> None:
        """Make the first workers, which run once `start` is called; one exchanger a partition."""
        self.dispatcher = dispatcher
        self.exchangers = exchangers
        self._name = name
        self._rules = rules
        self._tracing = tracing
        self._room = room or ByteSemaphore()
        self._spawn: Spawn | None = None
        self._wanted: frozenset[str] = frozenset()
        self._workers: dict[str, LocalWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.adopt(rules)
        self.resize(size)

    @property
    def size(self) -> int:
        """How many workers are wanted; surplus ones that still run aren't counted."""
        return len(self._wanted)

    @property
    def workers(self) -> list[LocalWorker]:
        """All workers, surplus ones included."""
        return list(self._workers.values())

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that the workers run in."""
        return list(self._tasks.values())

    @property
    def busy(self) -> int:
        """How many workers run a handler."""
        return sum(worker.is_busy for worker in self._workers.values())

    def adopt(self, rules: Rules) -> None:
        """Work by other rules from here on."""
        self._rules = rules
        for worker in self._workers.values():
            worker.adopt(rules)
        for exchanger in self.exchangers:
            exchanger.adopt(rules.policies.runs)

    def resize(self, size: int) -> None:
        """Have `size` workers: new ones start now, surplus ones go after their task."""
        names = [f"{self._name}-{n}" for n in range(size)]
        self._wanted = frozenset(names)
        self.dispatcher.retire(self._workers.keys() - self._wanted)
        for name in names:
            if name not in self._workers:
                self._workers[name] = LocalWorker(
                    name, self.dispatcher, self._rules, self._tracing, self._room
                )
                self._run(name)

    def start(self, spawn: Spawn) -> None:
        """Run the workers, now and later ones; `spawn` runs one as a task of the daemon."""
        self._spawn = spawn
        for name in self._workers:
            self._run(name)

    def _run(self, name: str) -> None:
        if self._spawn is not None:
            self._tasks[name] = self._spawn(name, self._serve(name))

    async def _serve(self, name: str) -> None:
        """Run a worker until it isn't wanted; it may be wanted again by the time it goes."""
        await self._workers[name].run()
        while name in self._wanted and self.dispatcher.may_claim:
            await self._workers[name].run()
        self.dispatcher.leave(self._workers[name])
        del self._workers[name], self._tasks[name]


class Holding:
    """All claims of one partition, of all pools; a `SessionListener` of `upkeep.renew`."""

    def __init__(
        self,
        exchangers: Mapping[Pool, Exchanger],
        workers: Callable[[], Sequence[LocalWorker]],
        on_session: Callable[[], None],
    ) -> None:
        """Binds the partition's exchanges, and the workers that may run their claims.

        `on_session` is called for each new session.
        """
        self._exchangers = exchangers
        self._workers = workers
        self._on_session = on_session

    def wake(self, pools: Set[Pool] | None = None) -> None:
        """Something may be claimable now, in these pools, or in any."""
        for name, exchanger in self._exchangers.items():
            if pools is None or name in pools:
                exchanger.wake()

    def hold_back(self, groups: Set[str] | None) -> None:
        """Groups, or (``None``) all, are held back: what was claimed of them doesn't begin."""
        if groups is None or groups:
            for exchanger in self._exchangers.values():
                exchanger.hold_back(groups)

    def cancel(self, ids: Set[str]) -> None:
        """Tasks are to be cancelled: end attempts at them, and begin none."""
        if ids:
            for exchanger in self._exchangers.values():
                exchanger.cancel(ids)
            for worker in self._running():
                worker.cancel(ids)

    def lease_ended(self) -> None:
        """Another daemon may have taken over: stop the handlers of this partition's claims."""
        for worker in self._running():
            worker.hand_back()

    def session_lost(self) -> None:
        """Every claim is lost: drop them, and stop their handlers."""
        for exchanger in self._exchangers.values():
            exchanger.close_session()
        for worker in self._running():
            worker.lose()

    def session_opened(self) -> None:
        """Claims can be made again."""
        for exchanger in self._exchangers.values():
            exchanger.open_session()
        self._on_session()

    def session_continued(self) -> None:
        """Ask each free slot: if the store lost its settlement, it holds a claim again.

        The store may have lost, or missed, what it was told of the daemon, too.
        """
        for exchanger in self._exchangers.values():
            exchanger.doubt()
        self._on_session()

    def claimable(self, plain: int, groups: int, cancels: Set[str] = frozenset()) -> None:
        """Each renewal tells what waits and what is to be cancelled, as wakes may be lost."""
        self.cancel(cancels)
        waiting: dict[Pool, int] = {"plain": plain, "grouped": groups}
        self.wake({name for name in waiting if waiting[name]})
        for exchanger in self._exchangers.values():
            exchanger.doubt_late_calls()

    def _running(self) -> list[LocalWorker]:
        """The workers that run a claim of this partition."""
        ours = set(self._exchangers.values())
        return [worker for worker in self._workers() if worker.source in ours]


class Workforce:
    """All pools of a daemon."""

    def __init__(self, pools: Mapping[Pool, WorkerPool]) -> None:
        """Binds the pools, none where the daemon only takes in."""
        self._pools = pools
        self._exchangers = [each for pool in pools.values() for each in pool.exchangers]

    @property
    def sizes(self) -> dict[str, int]:
        """How many workers are wanted, by pool."""
        return {name: pool.size for name, pool in self._pools.items()}

    @property
    def busy(self) -> dict[str, int]:
        """How many run a handler, by pool."""
        return {name: pool.busy for name, pool in self._pools.items()}

    @property
    def workers(self) -> list[LocalWorker]:
        """All workers, surplus ones included."""
        return [worker for pool in self._pools.values() for worker in pool.workers]

    def names_of(self, attempt: asyncio.Task[Any] | None) -> Mapping[str, Any]:
        """What to log of an attempt, empty where no worker runs it; from any thread."""
        for worker in self.workers:
            if attempt is not None and (names := worker.names_of(attempt)):
                return names
        return {}

    def seconds_in_exchange(self) -> float:
        """How long the oldest exchange in flight has waited. From any thread."""
        return max((each.seconds_in_exchange() for each in self._exchangers), default=0.0)

    def adopt(self, rules: Rules, sizes: Mapping[Pool, int]) -> None:
        """Go on by another configuration's rules, with as many workers as it wants."""
        for name, pool in self._pools.items():
            pool.adopt(rules)
            if pool.dispatcher.may_claim:
                pool.resize(sizes[name])

    def start(self, spawn: Spawn) -> None:
        """Start all pools; `spawn` as for a pool."""
        for pool in self._pools.values():
            pool.start(spawn)

    async def end(self, drain: float) -> None:
        """Claim no more, let handlers end for `drain` seconds, and hand back the rest."""
        for pool in self._pools.values():
            pool.dispatcher.stop_claiming()
        running = self.tasks
        if await wait_for(running, drain):
            log.warning("daemon.hands_back", tasks=sum(self.busy.values()))
            for worker in self.workers:
                worker.hand_back()
            await wait_for(running, HAND_BACK)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that the workers run in."""
        return [task for pool in self._pools.values() for task in pool.tasks]
