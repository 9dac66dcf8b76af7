"""Runs all tasks of one scan."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

import orjson
import structlog

from groupflow.core.errors import StoreUnavailable
from groupflow.core.measures import ScanMeasures
from groupflow.core.outcome import Dead, Done, Outcome, Turn
from groupflow.core.retry import RetryOverride
from groupflow.core.task import Task
from groupflow.flow.handling import Failed, failed, was_cancelled
from groupflow.scans.calls import found, worked
from groupflow.scans.closing import Closing
from groupflow.scans.letters import RowLetters
from groupflow.scans.scan import Scan, Shard
from groupflow.scans.state import ShardState
from groupflow.scans.turn import PAGE, Held, ShardTurn
from groupflow.store.client import StoreClient
from groupflow.store.scans import Record, ScanRecords, group_of

log = structlog.get_logger("groupflow.scans")

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
