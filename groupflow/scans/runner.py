"""Runs all tasks of one scan."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import orjson
import structlog

from groupflow.core.errors import StoreUnavailable
from groupflow.core.measures import ScanMeasures
from groupflow.core.outcome import Dead, Done, Outcome, Turn
from groupflow.core.policy import ROW_RULE
from groupflow.core.retry import RetryOverride
from groupflow.core.task import Task
from groupflow.flow.handling import Failed, failed, was_cancelled
from groupflow.scans.scan import Scan, Shard, found, worked
from groupflow.scans.state import Deferred, ShardState, merged
from groupflow.scans.turn import PAGE, REST, Held, ShardTurn
from groupflow.store.client import StoreClient
from groupflow.store.envelope import Envelope
from groupflow.store.scans import (
    Record,
    RowDeath,
    ScanRecords,
    group_of,
    present,
    scope_of,
    type_of,
)

log = structlog.get_logger("groupflow.scans")

AGAIN = 0.5  # seconds between two looks whether the other shards have stopped


class Closing:
    """One shard's turn in a generation that ends, since another number of shards is wanted.

    Old shards end before new ones start. If a scan keeps a place, each shard first stops and
    reports its place; then all go on up to the farthest of these. So all rows of all slices up to
    there are done, and new shards go on from there: no row is missed, and none comes twice.
    """

    def __init__(self, records: ScanRecords, held: Held, turn: ShardTurn) -> None:
        self._records = records
        self._held = held
        self._turn = turn

    async def run(self, *, keeps_place: bool) -> tuple[Outcome, bool]:
        """Take the turn.

        Returns:
            What becomes of the shard's task, and whether the next generation has begun.

        Raises:
            StoreUnavailable: no answer; the turn may be taken again.
        """
        record, state = self._held.record, self._turn.state
        if keeps_place and self._held.index not in record.ended:
            told = await self._records.report(record, "closed", self._held.index, state.after)
            if told is None or told.generation != record.generation:
                return Done(), False
            if len(told.closed) < told.count:
                return Turn(REST, state.as_json(), AGAIN), False
            outcome = await self._go_on_to(_farthest(told))
            if not isinstance(outcome, Done):
                return outcome, False
        return await self._end()

    async def _go_on_to(self, place: object) -> Outcome:
        if place is None or self._turn.state.after == place:
            return Done()
        return await self._turn.run(until=place)

    async def _end(self) -> tuple[Outcome, bool]:
        record = self._held.record
        told = await self._records.report(
            record, "ended", self._held.index, self._turn.state.left()
        )
        if told is None or told.generation != record.generation or len(told.ended) < told.count:
            return Done(), False
        await begin_next(self._records, told)
        return Done(), True


async def begin_next(records: ScanRecords, record: Record) -> None:
    """Begin the next generation, since all shards of this one have ended; later calls do nothing.

    Raises:
        StoreUnavailable: no answer; it may have begun.
    """
    done = record.done + sum(each["done"] for each in record.ended.values())
    carried = merged(record.ended.values())
    if await records.begin_next(record, _farthest(record), carried, done):
        log.info("scan.shards_changed", scan=record.name, old=record.count, new=record.wanted)


def _farthest(record: Record) -> object:
    """The farthest place at which a shard stopped; ``None`` for none."""
    places = [place for place in record.closed.values() if place is not None]
    return max(places, default=None)


class RowLetters:
    """The dead letters of a shard's rows."""

    def __init__(self, held: Held, store_of: Callable[[str], StoreClient]) -> None:
        """Binds the shard; `store_of` gives the store of a group."""
        self._held = held
        self._store_of = store_of

    async def bury(self, key: str, story: Deferred, kind: str) -> str | None:
        """Make a dead letter of a row; returns its id, or ``None`` if the shard is lost."""
        record, index = self._held.record, self._held.index
        type_, group = type_of(record.name), group_of(record.name, index)
        facts = {
            "scan": record.name,
            "row": orjson.loads(key),
            "shard": index,
            "of": record.count,
            "token": record.token,
        }
        scope = scope_of(record.name)
        envelope = Envelope(type_, group, None, ROW_RULE, {}, orjson.dumps(facts), scope)
        error = {"attempt": story.attempts, "stage": None, "error": kind, "message": story.error}
        death = RowDeath(
            id=f"{group}/{key}/{story.fence}",
            group=group,
            fence=self._held.task.fence,
            packed=envelope.pack(),
            type=type_,
            scope=scope,
            reason=f"row {key}: {story.error}",
            kind=kind,
            errors=[error],
            attempts=story.attempts,
        )
        return death.id if await death.bury(self._store_of(group)) else None

    async def present(self, ids: Sequence[str]) -> set[str]:
        """Those of some letters that are still there, or were redriven and wait or run."""
        by_store: dict[StoreClient, list[str]] = defaultdict(list)
        for id_ in ids:  # of this shard, or of one of an earlier generation
            by_store[self._store_of(id_.partition("/")[0])].append(id_)
        there: set[str] = set()
        for client, some in by_store.items():
            scope = scope_of(self._held.record.name)
            found = await present(client, [(id_, scope) for id_ in some])
            there |= {id_ for id_, is_there in zip(some, found, strict=True) if is_there}
        return there


ABSENT = 5.0  # seconds until a shard runs again that came to a daemon without its scan
AGAIN_SOON = 1.0  # seconds until a shard runs again for which Redis gave no answer


class ScanStore(Protocol):
    """What scans need of the store."""

    records: ScanRecords

    async def wake(self, name: str) -> bool:
        """End the sleep of a scan's shards. False if there is no such scan."""

    async def make(self, record: Record) -> None:
        """Enqueue those shards of a generation that aren't there."""

    def store_of(self, group: str) -> StoreClient:
        """The store where a shard lies."""


class ScanRunner:
    """Runs tasks of a scan's type: shards, redriven rows, messages that wake it."""

    def __init__(
        self, name: str, scan: Scan | None, store: ScanStore, measures: ScanMeasures
    ) -> None:
        """Binds a scan by its name; `scan` is ``None`` if this daemon doesn't have it."""
        retry = scan.retry if scan is not None else None
        self.retry = (
            RetryOverride(retry.max_attempts, retry.interval, retry.jitter)
            if retry
            else RetryOverride()
        )
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
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and was_cancelled():
                raise
            return failed(error)

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
        if task.context is None:
            state = ShardState.of({**(record.carried or {}), "after": record.after})
        else:
            state = ShardState.of(task.context)
        held = Held(record, facts["shard"], task)
        letters = RowLetters(held, self._store.store_of)
        turn = ShardTurn(scan, held, state, letters, self._measures)
        if not record.closing:
            return await turn.run()
        outcome, is_next = await Closing(self._store.records, held, turn).run(
            keeps_place=scan.keeps_place
        )
        if is_next:
            begun = await self._store.records.look(self._name)
            if begun is not None:
                await self._store.make(begun)
        return outcome

    async def _run_row(self, scan: Scan, facts: Mapping[str, Any], task: Task) -> Outcome:
        """Run a row whose dead letter was redriven; pages skip it meanwhile."""
        if scan.finds:
            shard = Shard(facts["shard"], facts["of"], 1, fence=task.fence)
            for row in await found(scan, [facts["row"]], shard):
                async with scan.working(shard) as told:
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
