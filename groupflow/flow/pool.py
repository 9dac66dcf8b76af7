"""The workers of one pool: as many as are wanted, more or fewer at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from groupflow.flow.dispatch import Dispatcher
from groupflow.flow.worker import Worker

Spawn: TypeAlias = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]


def names_of(pools: Iterable[WorkerPool], attempt: asyncio.Task[Any] | None) -> dict[str, Any]:
    """What to log of an attempt, empty where none of the workers runs it; from any thread."""
    for pool in pools:
        for worker in pool.workers:
            if attempt is not None and (names := worker.names_of(attempt)):
                return names
    return {}


class WorkerPool:
    """Keeps a dispatcher's workers at the number that is wanted.

    A surplus worker is never cancelled: it ends its task, hands it in, and goes.
    """

    def __init__(
        self, name: str, dispatcher: Dispatcher, make: Callable[[str], Worker], size: int
    ) -> None:
        """Make the first workers; they run once `start` is called.

        Args:
            name: of the pool; its workers are called after it.
            dispatcher: gives them their claims.
            make: makes a worker of a name.
            size: how many.
        """
        self.dispatcher = dispatcher
        self._name = name
        self._make = make
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

    def resize(self, size: int) -> None:
        """Have so many workers: new ones start now, surplus ones go after their task."""
        names = [f"{self._name}-{n}" for n in range(size)]
        self._wanted = frozenset(names)
        self.dispatcher.retire(self._workers.keys() - self._wanted)
        for name in names:
            if name not in self._workers:
                self._workers[name] = self._make(name)
                self._run(name)

    def start(self, spawn: Spawn) -> None:
        """Run the workers, now and later.

        Args:
            spawn: runs a worker as a task of the daemon.
        """
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
        del self._workers[name], self._tasks[name]
