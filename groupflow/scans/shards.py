"""The shards of a daemon's scans: makes, wakes and runs their tasks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import orjson
import structlog

from groupflow.core.errors import GroupflowError
from groupflow.core.measures import ScanMeasures
from groupflow.core.policy import SHARD_RULE
from groupflow.scans.runner import ScanRunner, begin_next
from groupflow.scans.scan import Scan
from groupflow.store.client import StoreClient
from groupflow.store.copies import Copies
from groupflow.store.enqueue import Arrival, Enqueuer
from groupflow.store.envelope import Envelope
from groupflow.store.partitions import partition_of
from groupflow.store.scans import (
    Record,
    ScanRecords,
    group_of,
    hasten,
    present,
    scope_of,
    type_of,
)

log = structlog.get_logger("groupflow.scans")

AGAIN = 5.0  # seconds between two looks whether all shards are there
AGAIN_SOON = 1.0  # seconds, if Redis does not answer
A_LITTLE = 0.000_001  # seconds of priority: a task that has some has a life from the start


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores in which scans lie."""

    common: StoreClient  # of the namespace's keys without a partition's number
    partitions: Sequence[StoreClient]
    copies: Copies | None = None  # how many replicas must have what shards report

    def of(self, group: str) -> StoreClient:
        """The partition of a group."""
        return self.partitions[partition_of(group, "", len(self.partitions))]


class Shards:
    """All that a daemon does for scans."""

    def __init__(
        self,
        scans: Iterable[Scan],
        stores: Stores,
        measures: Mapping[str, ScanMeasures],
    ) -> None:
        """Binds the scans that the daemon's application includes; others are known from the store.

        Raises:
            ValueError: a scan lacks something.
        """
        self.scans = {scan.name: scan for scan in scans}
        for scan in self.scans.values():
            scan.check()
        self._stores = stores
        self._measures = measures
        self._runners: dict[str, ScanRunner] = {}
        self._opened: set[str] = set()
        self.records = ScanRecords(stores.common, stores.copies)

    def runner(self, type_: str) -> ScanRunner:
        """The runner of a scan's tasks, by their type."""
        name = type_.removeprefix(type_of(""))
        if name not in self.scans:  # such names come from messages: none is kept
            return ScanRunner(name, None, self, ScanMeasures())
        if name not in self._runners:
            self._runners[name] = ScanRunner(name, self.scans[name], self, self._measures[name])
        return self._runners[name]

    async def run(self) -> None:
        """Look after the shards for ever."""
        while True:
            try:
                pause = await self.keep()
            except GroupflowError as error:
                log.warning("scans.failed", error=str(error))
                pause = AGAIN_SOON
            await asyncio.sleep(pause)

    async def keep(self) -> float:
        """Make sure that all shards are there, as many as our scans say when this daemon starts.

        Returns:
            The seconds until the next look.

        Raises:
            StoreUnavailable: no answer.
        """
        for name, scan in self.scans.items():
            record = await self.records.look(name)
            if record is None or name not in self._opened:
                if await self.records.open(name, scan.shards):
                    log.info("scan.opened", scan=name, shards=scan.shards)
                self._opened.add(name)
                record = await self.records.look(name)
            if record is not None and record.closing and len(record.ended) == record.count:
                # The daemon that ended the last shard died before this, or a fail-over has lost it.
                await begin_next(self.records, record)
                record = await self.records.look(name)
            if record is not None:
                await self.make(record)
                if record.closing:
                    await self._hasten(record)
        return AGAIN

    async def make(self, record: Record) -> None:
        """Enqueue those shards of a generation that aren't there.

        A shard that has ended isn't made again, as its id is known.
        """
        missing: dict[StoreClient, list[int]] = defaultdict(list)
        for client, indexes in self._by_store(record).items():
            scope = scope_of(record.name)
            there = await present(client, [(record.id_of(index), scope) for index in indexes])
            left = [index for index, is_there in zip(indexes, there, strict=True) if not is_there]
            if left and not (record.closing and set(left) <= record.ended.keys()):
                missing[client] = left
        for client, indexes in missing.items():
            arrivals = [_arrival(record, index) for index in indexes]
            await Enqueuer(client).enqueue(arrivals)

    async def wake(self, name: str) -> bool:
        """End the sleep of a scan's shards. False if there is no such scan.

        Raises:
            StoreUnavailable: a partition doesn't answer; its shards may sleep on.
        """
        record = await self.records.look(name)
        if record is not None:
            await self._hasten(record)
        return record is not None

    async def _hasten(self, record: Record) -> None:
        for client, indexes in self._by_store(record).items():
            await hasten(client, [record.id_of(index) for index in indexes])

    def _by_store(self, record: Record) -> dict[StoreClient, list[int]]:
        found: dict[StoreClient, list[int]] = defaultdict(list)
        for index in record.shards:
            found[self._stores.of(group_of(record.name, index))].append(index)
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Surrounds the daemon's work: its scans are open, and can be woken."""
        async with AsyncExitStack() as stack:
            for name, scan in self.scans.items():
                scan.bind(partial(self.wake, name))
                stack.callback(scan.bind, None)
                await stack.enter_async_context(scan.running())
            yield

    def store_of(self, group: str) -> StoreClient:
        """The store where a shard lies."""
        return self._stores.of(group)


def _arrival(record: Record, index: int) -> Arrival:
    facts = {
        "scan": record.name,
        "shard": index,
        "of": record.count,
        "generation": record.generation,
        "token": record.token,
    }
    envelope = Envelope(
        type_of(record.name),
        group_of(record.name, index),
        None,
        SHARD_RULE,
        {},
        orjson.dumps(facts),
        scope_of(record.name),
    )
    return Arrival(record.id_of(index), envelope, priority=A_LITTLE)
