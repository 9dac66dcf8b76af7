"""The shards of a daemon's scans: makes, wakes and runs their tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import orjson
import structlog

from groupflow.core.errors import StoreUnavailable
from groupflow.core.measures import ScanMeasures
from groupflow.core.outcome import Dead, Done, Outcome, Turn
from groupflow.core.policy import SHARD_RULE, RetryOverride
from groupflow.core.task import Task
from groupflow.flow.handling import Failed
from groupflow.scans.scan import Scan, Shard, found, worked, working
from groupflow.scans.state import ShardState, merged
from groupflow.scans.turn import PAGE, REST, ClaimedShard, ShardTurn, failed_by
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import Arrival, Enqueuer
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
from groupflow.store.wire import ReplicaWait

log = structlog.get_logger("groupflow.scans")

AGAIN = 5.0  # seconds between two looks whether all shards are there
AGAIN_SOON = 1.0  # seconds until the next try where Redis gave no answer
CLOSING = 0.5  # seconds between two looks whether the other shards have stopped
ABSENT = 5.0  # seconds until a shard runs again that came to a daemon without its scan
A_LITTLE = 0.000_001  # seconds of priority: a task that has some has a task state from the start


class ScanRunner:
    """Runs tasks of a scan's type: shards, redriven rows, messages that wake it."""

    def __init__(self, name: str, scan: Scan | None, store: Shards, measures: ScanMeasures) -> None:
        """Binds a scan by its name; `scan` is ``None`` if this daemon doesn't have it."""
        self.retry = RetryOverride(**asdict(scan.retry)) if scan else RetryOverride()
        self.timeout: float | None = None  # a row has one of its own
        self._name = name
        self._scan = scan
        self._store = store
        self._measures = measures

    async def handle(self, task: Task) -> Outcome | Failed:
        """Run one attempt to its outcome."""
        try:
            return await self._run(task)
        except StoreUnavailable as error:
            log.warning("scan.store_unavailable", scan=self._name, error=str(error))
            return Turn(task.stage or PAGE, task.context, AGAIN_SOON, crashed=True)
        except BaseException as error:  # noqa: BLE001  the application's
            return failed_by(error)

    async def _run(self, task: Task) -> Outcome:
        facts = _facts(task)
        record = await self._store.records.look(self._name, carried=task.context is None)
        if record is None:
            is_ours = task.group == group_of(self._name, facts.get("shard", 0))
            if is_ours and "token" in facts:
                return Done()  # the scan was dropped
            return Dead(f"there is no scan {self._name!r}")
        if facts.get("token") != record.token:
            await self._store.wake(self._name)
            return Done()
        if self._scan is None:  # another daemon has it
            return Turn(task.stage or PAGE, task.context, ABSENT, crashed=True)
        if "row" in facts:
            return await self._run_row(self._scan, facts, task)
        return await self._run_shard(self._scan, record, facts, task)

    async def _run_shard(
        self, scan: Scan, record: Record, facts: Mapping[str, Any], task: Task
    ) -> Outcome:
        if facts["generation"] != record.generation:
            return Done()
        context = task.context
        if context is None:
            context = {**(record.carried or {}), "after": record.after}
        held = ClaimedShard(record, facts["shard"], task)
        store_of = self._store.stores.of
        turn = ShardTurn(scan, held, ShardState.of(context), store_of, self._measures)
        if not record.closing:
            return await turn.run()
        return await self._close(held, turn, keeps_place=scan.keeps_place)

    async def _close(self, held: ClaimedShard, turn: ShardTurn, *, keeps_place: bool) -> Outcome:
        """One shard's turn in a generation that ends, since another number of shards is wanted.

        Old shards end before new ones start. If a scan keeps a place, each shard first stops and
        reports its place; then all go on up to the farthest of these. So all rows of all slices up
        to there are done, and new shards go on from there: no row is missed, and none comes twice.
        """
        record, state, records = held.record, turn.state, self._store.records
        if keeps_place and held.index not in record.ended:
            told = await records.report(record, "closed", held.index, state.after)
            if told is None or told.generation != record.generation:
                return Done()
            if len(told.closed) < told.count:
                return Turn(REST, state.as_json(), CLOSING)
            place = _farthest(told)
            if place is not None and state.after != place:
                outcome = await turn.run(until=place)
                if not isinstance(outcome, Done):
                    return outcome
        told = await records.report(record, "ended", held.index, state.left())
        if told and told.generation == record.generation and len(told.ended) == told.count:
            await self._store.begin_next(told)
            begun = await records.look(self._name)
            if begun is not None:
                await self._store.make(begun)
        return Done()

    async def _run_row(self, scan: Scan, facts: Mapping[str, Any], task: Task) -> Outcome:
        """Run a row whose dead letter was redriven; pages skip it meanwhile."""
        if scan.finds:
            shard = Shard(facts["shard"], facts["of"], 1, fence=task.fence)
            for row in await found(scan, [facts["row"]], shard):
                async with working(scan, shard) as told:
                    await worked(scan, row, told)
                self._measures.done += 1
        # Without `find`, a page has to bring it again.
        await self._store.wake(self._name)
        return Done()


def _facts(task: Task) -> dict[str, Any]:
    """The facts in the body, if it is one of ours; else none."""
    try:
        facts = orjson.loads(task.body)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores in which scans lie."""

    common: StoreClient  # of the namespace's keys without a partition's number
    partitions: Sequence[StoreClient]
    replica_wait: ReplicaWait | None = None  # how many replicas must have what shards report

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
        self.stores = stores
        self._measures = measures
        self._runners: dict[str, ScanRunner] = {}
        self._opened: set[str] = set()
        self.records = ScanRecords(stores.common, stores.replica_wait)

    def runner(self, type_: str) -> ScanRunner:
        """The runner of a scan's tasks, by their type."""
        name = type_.removeprefix(type_of(""))
        if name not in self.scans:  # such names come from messages: none is kept
            return ScanRunner(name, None, self, ScanMeasures())
        if name not in self._runners:
            self._runners[name] = ScanRunner(name, self.scans[name], self, self._measures[name])
        return self._runners[name]

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
                await self.begin_next(record)
                record = await self.records.look(name)
            if record is not None:
                await self.make(record)
                if record.closing:
                    await self._hasten(record)
        return AGAIN

    async def begin_next(self, record: Record) -> None:
        """Begin the next generation, as all shards of this one have ended; later calls do nothing.

        Raises:
            StoreUnavailable: no answer; it may have begun.
        """
        done = record.done + sum(each["done"] for each in record.ended.values())
        carried = merged(record.ended.values())
        if await self.records.begin_next(record, _farthest(record), carried, done):
            log.info("scan.shards_changed", scan=record.name, old=record.count, new=record.wanted)

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
            found[self.stores.of(group_of(record.name, index))].append(index)
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


def _farthest(record: Record) -> object:
    """The farthest place at which a shard stopped; ``None`` for none."""
    places = [place for place in record.closed.values() if place is not None]
    return max(places, default=None)


def _arrival(record: Record, index: int) -> Arrival:
    envelope = record.envelope(index, SHARD_RULE, generation=record.generation)
    return Arrival(record.id_of(index), envelope, priority=A_LITTLE)
