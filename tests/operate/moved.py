"""A namespace to move from one number of partitions to another, and what ends a move half-way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupflow.operate.repartition import Repartition, Report
from groupflow.store.client import Call, StoreClient
from groupflow.store.enqueue import Arrival
from groupflow.store.epochs import Epoch
from groupflow.store.keys import Keys
from groupflow.store.partitions import agree, keys_of, partition_of
from tests.history.snapshot import Snapshot, read
from tests.store.bench import Bench


class Cut(Exception):
    """The process was killed."""


@dataclass
class Killer:
    """Ends a move at one of its calls, before Redis has run it or right behind."""

    at: int | None = None  # the call, from 0; none ends
    runs_it: bool = False
    calls: int = 0

    def make(self, url: str) -> Callable[[Keys], StoreClient]:
        return lambda keys: Killed(url, keys, self)


class Killed(StoreClient):
    def __init__(self, url: str, keys: Keys, killer: Killer) -> None:
        super().__init__(url, keys)
        self._killer = killer

    async def run_all(self, calls: Sequence[Call], epoch: Epoch | None = None) -> list[Any]:
        number, killer = self._killer.calls, self._killer
        killer.calls += 1
        if number == killer.at and not killer.runs_it:
            raise Cut
        replies = await super().run_all(calls, epoch)
        if number == killer.at:
            raise Cut
        return replies


@dataclass
class World:
    """A namespace of any number of partitions."""

    url: str
    name: str
    count: int
    benches: dict[int, list[Bench]] = field(default_factory=dict)

    def at(self, count: int) -> list[Bench]:
        """Its partitions, of so many."""
        if count not in self.benches:
            self.benches[count] = [Bench(self.url, keys=keys) for keys in keys_of(self.name, count)]
        return self.benches[count]

    def bench_of(self, group: str | None, id_: str = "") -> Bench:
        return self.at(self.count)[partition_of(group, id_, self.count)]

    async def enqueue(self, *arrivals: Arrival) -> None:
        """Take messages in where they belong, one after another."""
        for each in arrivals:
            await self.bench_of(each.envelope.group, each.id).enqueuer.enqueue([each])

    async def move(self, count: int, killer: Killer | None = None) -> Report:
        """Move it, by a process of its own."""
        made: list[StoreClient] = []
        make = (killer or Killer()).make(self.url)

        def noted(keys: Keys) -> StoreClient:
            made.append(make(keys))
            return made[-1]

        try:
            return await Repartition(self.name, count, noted).run()
        finally:
            for client in made:
                await client.close()

    async def note(self) -> None:
        """Note the number, as a daemon does that starts."""
        await agree(self.at(1)[0].client, self.count)

    @property
    def raw(self) -> Any:
        return self.at(1)[0].raw

    def read(self, count: int) -> list[Snapshot]:
        return [read(bench.raw, bench.keys) for bench in self.at(count)]

    def names(self) -> set[str]:
        """All keys of the namespace."""
        patterns = (f"{{{self.name}}}:*", f"{{{self.name}:*}}:*")
        return {key.decode() for each in patterns for key in self.raw.scan_iter(each, 1000)}

    def dump(self) -> dict[str, bytes]:
        names = [*self.names()]
        with self.raw.pipeline() as pipe:
            for key in names:
                pipe.dump(key)
            return dict(zip(names, pipe.execute(), strict=True))

    def restore(self, dump: dict[str, bytes]) -> None:
        with self.raw.pipeline() as pipe:
            pipe.delete(*self.names())
            for key, value in dump.items():
                pipe.restore(key, 0, value)
            pipe.execute()

    async def close(self) -> None:
        for key in self.names():
            self.raw.delete(key)
        for bench in itertools.chain.from_iterable(self.benches.values()):
            await bench.client.close()
            bench.raw.close()


MakeWorld = Callable[[int], World]
