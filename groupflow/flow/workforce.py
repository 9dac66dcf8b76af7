"""Who works: pools of workers, as many in each as are wanted, more or fewer at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any, TypeAlias

import structlog

from groupflow.core.tracing import Tracing
from groupflow.flow.exchange import Exchanger
from groupflow.flow.hall import Hall
from groupflow.flow.parts import wait_for
from groupflow.flow.worker import Rules, Worker
from groupflow.store.envelope import Pool

HAND_BACK = 5.0  # seconds for cancelled handlers to end (a stubborn command is killed after 2)

Spawn: TypeAlias = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]

log = structlog.get_logger("groupflow.daemon")


class WorkerPool:
    """The workers of one hall.

    A surplus worker is never cancelled: it ends its task, hands it in, and goes.
    """

    def __init__(
        self,
        name: Pool,
        hall: Hall,
        exchangers: Sequence[Exchanger],
        *,
        rules: Rules,
        size: int,
        tracing: Tracing | None = None,
    ) -> None:
        """Make the first workers; they run once `start` is called. `exchangers`: one a store."""
        self.hall = hall
        self.exchangers = exchangers
        self._name = name
        self._rules = rules
        self._tracing = tracing
        self._spawn: Spawn | None = None
        self._wanted: frozenset[str] = frozenset()
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.resize(size)

    @property
    def size(self) -> int:
        """How many workers are wanted; surplus ones that still run aren't counted."""
        return len(self._wanted)

    @property
    def workers(self) -> list[Worker]:
        """All that there are, surplus ones included."""
        return list(self._workers.values())

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What they run in."""
        return list(self._tasks.values())

    @property
    def busy(self) -> int:
        """How many run a handler."""
        return sum(worker.is_busy for worker in self._workers.values())

    def adopt(self, rules: Rules) -> None:
        """Work by other rules from here on."""
        self._rules = rules
        for worker in self._workers.values():
            worker.rules = rules

    def resize(self, size: int) -> None:
        """Have so many workers: new ones start now, surplus ones go after their task."""
        names = [f"{self._name}-{n}" for n in range(size)]
        self._wanted = frozenset(names)
        self.hall.retire(self._workers.keys() - self._wanted)
        for name in names:
            if name not in self._workers:
                self._workers[name] = Worker(name, self.hall, self._rules, self._tracing)
                self._run(name)

    def start(self, spawn: Spawn) -> None:
        """Run the workers, now and later; `spawn` runs one as a task of the daemon."""
        self._spawn = spawn
        for name in self._workers:
            self._run(name)

    def _run(self, name: str) -> None:
        if self._spawn is not None:
            self._tasks[name] = self._spawn(name, self._serve(name))

    async def _serve(self, name: str) -> None:
        """Run a worker until it isn't wanted; it may be wanted again by the time it goes."""
        await self._workers[name].run()
        while name in self._wanted and self.hall.may_claim:
            await self._workers[name].run()
        del self._workers[name], self._tasks[name]


class Workforce:
    """All pools of a daemon, and what becomes of them with its session and lease."""

    def __init__(self, pools: Mapping[Pool, WorkerPool], on_session: Callable[[], None]) -> None:
        """Binds the pools, none where the daemon only takes in; told of each new session."""
        self._pools = pools
        self._exchangers = [each for pool in pools.values() for each in pool.exchangers]
        self._on_session = on_session

    @property
    def sizes(self) -> dict[str, int]:
        """How many workers are wanted, by pool."""
        return {name: pool.size for name, pool in self._pools.items()}

    @property
    def busy(self) -> dict[str, int]:
        """How many run a handler, by pool."""
        return {name: pool.busy for name, pool in self._pools.items()}

    @property
    def _workers(self) -> list[Worker]:
        return [worker for pool in self._pools.values() for worker in pool.workers]

    def names_of(self, attempt: asyncio.Task[Any] | None) -> Mapping[str, Any]:
        """What to log of an attempt, empty where no worker runs it; from any thread."""
        for worker in self._workers:
            if attempt is not None and (names := worker.names_of(attempt)):
                return names
        return {}

    def seconds_in_exchange(self) -> float:
        """How long the oldest exchange under way has taken. From any thread."""
        return max((each.seconds_in_exchange() for each in self._exchangers), default=0.0)

    def wake(self, pools: Set[Pool] | None = None) -> None:
        """Something may be claimable now, in these pools, or in any."""
        for name, pool in self._pools.items():
            if pools is None or name in pools:
                pool.hall.wake()

    def adopt(self, rules: Rules, sizes: Mapping[Pool, int]) -> None:
        """Go on by another configuration's rules, with as many workers as it wants."""
        for name, pool in self._pools.items():
            pool.adopt(rules)
            if pool.hall.may_claim:
                pool.resize(sizes[name])

    def exchanging(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What serves the pools, to be run for ever, by name."""
        return {f"exchange {each.pool}": each.run() for each in self._exchangers}

    def start(self, spawn: Spawn) -> None:
        """Let all work; `spawn` as for a pool."""
        for pool in self._pools.values():
            pool.start(spawn)

    async def end(self, drain: float) -> None:
        """Claim no more, let what runs end for so many seconds, and hand back the rest."""
        for pool in self._pools.values():
            pool.hall.stop_claiming()
        running = self.tasks
        if await wait_for(running, drain):
            log.warning("daemon.hands_back", tasks=sum(self.busy.values()))
            self.lease_ended()
            await wait_for(running, HAND_BACK)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What the workers run in."""
        return [task for pool in self._pools.values() for task in pool.tasks]

    # What becomes of the lease (upkeep.lease.Holder):

    def lease_ended(self) -> None:
        """Somebody may rightly have taken over: stop all handlers."""
        for worker in self._workers:
            worker.hand_back()

    def session_lost(self) -> None:
        """Every claim is somebody else's."""
        for exchanger in self._exchangers:
            exchanger.close_session()
        for worker in self._workers:
            worker.lose()

    def session_opened(self) -> None:
        """Claims can be made again."""
        for exchanger in self._exchangers:
            exchanger.open_session()
        self._on_session()

    def claimable(self, plain: int, groups: int) -> None:
        """A wake may have been lost: what waits now is told with each renewal."""
        waiting: dict[Pool, int] = {"plain": plain, "grouped": groups}
        self.wake({name for name in waiting if waiting[name]})
