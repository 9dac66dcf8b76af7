"""A namespace of several partitions to test on: a bench for each, and all of them as of one."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from groupflow.operate.namespace import Namespace
from groupflow.operate.pages import each_page
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival
from groupflow.store.keys import Keys
from groupflow.store.partitions import keys_of, partition_of
from tests.history.invariants import Violation
from tests.store.bench import Bench, Daemon, arrival

_NOBODY = "redis://127.0.0.1:1/0"  # nothing listens there
_numbers = itertools.count(1)


async def all_pages(ask: Callable[[Any], Awaitable[Any]], begin: Any = "0") -> list[Any]:
    """Every page of a list, each asked for by the cursor that the one before it told."""
    return [page async for page in each_page(ask, begin)]


class Spread:
    """Partitions on one server, which tests may take away one by one.

    Attributes:
        benches: of the partitions, in order.
        namespace: all of them as of one.
    """

    def __init__(self, url: str, count: int) -> None:
        self.name = f"spread{next(_numbers)}"
        self.benches = [Bench(url, keys=keys) for keys in keys_of(self.name, count)]
        self.namespace = Namespace([bench.client for bench in self.benches])

    def without(self, *gone: int) -> Namespace:
        """The same, some partitions of which don't answer."""
        clients = [bench.client for bench in self.benches]
        for number in gone:
            clients[number] = StoreClient(_NOBODY, self.benches[number].keys)
        return Namespace(clients)

    def place_of(self, group: str | None, id_: str = "") -> int:
        """Where a task lies."""
        return partition_of(group, id_, len(self.benches))

    def group_in(self, partition: int, name: str = "g") -> str:
        """A group that lies in a partition."""
        groups = (f"{name}{n}" for n in itertools.count())
        return next(group for group in groups if self.place_of(group) == partition)

    async def enqueue(self, *arrivals: Arrival) -> None:
        """Take messages in, one at a time and so in this order, each where it belongs."""
        for each in arrivals:
            await self.benches[self.place_of(each.envelope.group, each.id)].enqueue(each)

    async def put(self, *arrivals: Arrival) -> None:
        """The same of what will be moved: no history could follow it."""
        for each in arrivals:
            home = self.benches[self.place_of(each.envelope.group, each.id)]
            await home.enqueuer.enqueue([each])

    async def fill(self, groups: int = 40) -> list[str]:
        """Groups of two tasks each, in the order of their names, and as many plain tasks."""
        names = [f"g{n:02}" for n in range(groups)]
        await self.enqueue(*(arrival(f"{name}-1", name) for name in names))
        await self.enqueue(*(arrival(f"{name}-2", name) for name in names))
        await self.enqueue(*(arrival(f"p{n:02}") for n in range(groups)))
        return names

    async def daemons(self, name: str = "d1") -> list[Daemon]:
        """A daemon with a session in each partition."""
        return [await bench.daemon(name) for bench in self.benches]

    async def __aenter__(self) -> Spread:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def judge(self) -> list[Violation]:
        """What is wrong in any partition."""
        return [violation for bench in self.benches for violation in bench.judge()]

    async def close(self) -> None:
        """Close all, and remove what they hold."""
        self.benches[0].raw.delete(Keys(self.name)("actions"))
        for bench in self.benches:
            await bench.close()
