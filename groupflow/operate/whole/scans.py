"""Scans of a whole namespace: their shards lie in all partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from groupflow.operate.scans import ScanStory, ShardStory, look_at_shards, story_of
from groupflow.operate.whole.namespace import Namespace, missing
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.scans import Record, ScanRecords, group_of, hasten


class AllScans:
    """The scans of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    @asynccontextmanager
    async def _records(self) -> AsyncIterator[ScanRecords]:
        """The records of scans lie with the keys that all partitions share."""
        clients = self._namespace.clients
        if len(clients) == 1:
            yield ScanRecords(clients[0])
            return
        common = clients[0].beside(Keys(clients[0].keys.namespace))
        try:
            yield ScanRecords(common)
        finally:
            await common.close()

    async def every(self) -> list[ScanStory]:
        """All scans, by name."""
        async with self._records() as records:
            found = [await records.look(name) for name in await records.names()]
        return [story_of(each, await self._shards(each)) for each in found if each is not None]

    async def shards(self, name: str) -> list[ShardStory]:
        """The shards of a scan.

        Raises:
            KeyError: there is no such scan.
        """
        return await self._shards(await self._record(name))

    async def shard(self, group: str) -> ShardStory | None:
        """The shard that a group is, or ``None`` if it is none."""
        front, _, index = group.rpartition(":")
        name = front.partition(":")[2]
        if not index.isdigit() or group_of(name, int(index)) != group:
            return None
        try:
            record = await self._record(name)
        except KeyError:
            return None
        if int(index) >= record.count:
            return None
        place = self._namespace.place_of(group)
        question = partial(look_at_shards, record=record, indexes=[int(index)])
        return (await self._namespace.ask(place, question))[0]

    async def wake(self, name: str) -> None:
        """End the sleep of a scan's shards.

        Raises:
            KeyError: there is no such scan.
            StoreUnavailable: a partition is away, and its shards may sleep on.
        """
        record = await self._record(name)

        async def wake(indexes: list[int], client: StoreClient) -> int:
            return await hasten(client, [record.id_of(index) for index in indexes])

        answers = await self._namespace.ask_each(
            {place: partial(wake, indexes) for place, indexes in self._places(record).items()}
        )
        missing(answers.away)

    async def drop(self, name: str) -> bool:
        """Forget a scan that no daemon has any more. Returns whether there was one."""
        async with self._records() as records:
            return await records.drop(name)

    async def _record(self, name: str) -> Record:
        async with self._records() as records:
            record = await records.look(name)
        if record is None:
            raise KeyError(name)
        return record

    def _places(self, record: Record) -> dict[int, list[int]]:
        places: dict[int, list[int]] = defaultdict(list)
        for index in record.shards:
            places[self._namespace.place_of(group_of(record.name, index))].append(index)
        return places

    async def _shards(self, record: Record) -> list[ShardStory]:
        answers = await self._namespace.ask_each(
            {
                place: partial(look_at_shards, record=record, indexes=indexes)
                for place, indexes in self._places(record).items()
            }
        )
        found = [each for shards in answers.all for each in shards]
        return sorted(found, key=lambda each: each.index)
