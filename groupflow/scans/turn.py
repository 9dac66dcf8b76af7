"""A shard's turn: one page of its rows, from the fetch to the outcome of its task."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson
import structlog

from groupflow.core.errors import StoreUnavailable
from groupflow.core.measures import ScanMeasures
from groupflow.core.outcome import Done, Halt, Outcome, Turn
from groupflow.core.policy import ROW_RULE
from groupflow.core.task import Task
from groupflow.flow.handling import Failed, failed, message_of, was_cancelled
from groupflow.scans.scan import Scan, Shard, fetched, found, worked, working
from groupflow.scans.state import ERROR_CHARS, MOST_ASIDE, Deferred, ShardState, text_of_key
from groupflow.store.client import StoreClient
from groupflow.store.scans import Record, bury_row, group_of, present, scope_of

log = structlog.get_logger("groupflow.scans")

PAGE, REST = "page", "rest"  # a shard's stages: it goes on, or sleeps until it is due
SLICE = 2.0  # seconds after which a page ends between two rows: bounds what a crash can undo
SHORTEST_SLEEP = 0.01  # seconds
LONGEST_TROUBLE = 30.0  # seconds between two looks at a database that is away
_DIED = "DaemonDied"  # the error of a row that its daemon didn't survive


@dataclass(frozen=True, slots=True)
class ClaimedShard:
    """The shard that a task is, under one claim."""

    record: Record  # of its scan, when the claim began
    index: int
    task: Task


def failed_by(error: BaseException) -> Failed:
    """What the application raised; our own cancelling goes on, while the error is handled."""
    if isinstance(error, asyncio.CancelledError) and was_cancelled():
        raise error
    return failed(error)


class _Stop(Exception):
    """The page ends here."""


class ShardTurn:
    """One turn. It changes the state; the outcome carries that on."""

    def __init__(
        self,
        scan: Scan,
        held: ClaimedShard,
        state: ShardState,
        store_of: Callable[[str], StoreClient],
        measures: ScanMeasures,
    ) -> None:
        """Binds a claimed shard of a scan, and its state; `store_of` gives the store of a group."""
        self.state = state
        self._scan = scan
        self._held = held
        self._store_of = store_of
        self._measures = measures
        self._began = monotonic()
        self._is_cautious = held.task.crashes > 0
        self._done = self._deferred = 0  # rows of this turn
        self._halt = ""  # why the shard can't go on
        self._pause: float | None = None  # seconds for which it waits behind a row

    @property
    def now(self) -> float:
        """Unix seconds by Redis's clock."""
        return self._held.record.now + monotonic() - self._began

    def shard(self) -> Shard:
        """The shard that the scan's functions are given."""
        held = self._held
        # Where it waits behind a row, that one comes first again.
        keys = self.state.dead if self._scan.holds else self.state.skipped(self.now)
        skip = tuple(orjson.loads(key) for key in keys)
        return Shard(
            held.index, held.record.count, self._scan.page, self.state.after, skip, held.task.fence
        )

    async def run(self, until: Any = None) -> Outcome:
        """Work through a page; `until` is the last place to work on."""
        try:
            await self._forget_letters()
            shard = self.shard()
            rows = await self._rows(shard)
            if until is not None:
                rows = [row for row in rows if self._place(row) <= until]
            keyed = self._sorted_out(rows)
        except StoreUnavailable as error:
            return self._in_trouble(str(error))
        except BaseException as error:  # noqa: BLE001  the application's
            return self._trouble_of(error)
        if self.state.troubles:
            log.info("scan.goes_on", **self._names(), tried=self.state.troubles)
        self.state.trouble, self.state.troubles = "", 0
        self._measures.pages += 1
        if not keyed:
            return Done() if until is not None else self._rest()
        async with AsyncExitStack() as stack:
            try:
                told = await stack.enter_async_context(working(self._scan, shard))
            except BaseException as error:  # noqa: BLE001  the application's
                return self._trouble_of(error)
            return await self._work(keyed, told)

    async def _forget_letters(self) -> None:
        """Stop skipping rows whose letters are gone, by a redrive or a drop."""
        if self.state.dead and self._held.task.stage != PAGE:
            there = await self._present(list(self.state.dead.values()))
            self.state.dead = {key: id_ for key, id_ in self.state.dead.items() if id_ in there}

    async def _rows(self, shard: Shard) -> Sequence[Any]:
        """A page: of deferred rows that are due, or else of others."""
        self._is_again = False
        now = self.now
        looks_up = self._scan.finds and not self._scan.holds
        if looks_up:
            due = self.state.due(now)[: shard.page]
            if due:
                rows = await found(self._scan, [orjson.loads(key) for key in due], shard)
                wanted = {text_of_key(self._scan.key_of(row)) for row in rows}
                for key in due:
                    if key not in wanted:  # another process has done it
                        del self.state.deferred[key]
                if rows:
                    self._is_again = True
                    return rows
        rows = await fetched(self._scan, shard)
        if not rows and not looks_up:  # else more may be due than a page, behind the cursor
            # A due row would have been among them: it wants no work any more.
            for key in self.state.due(now):
                del self.state.deferred[key]
        return rows

    def _sorted_out(self, rows: Sequence[Any]) -> list[tuple[str, Any]]:
        """The rows with their keys, without those to skip.

        Raises:
            ValueError: rows don't come in the order of their places, or two have one place: if a
                page ended between them, the second would be passed over.
        """
        skipped = set(self.state.dead if self._scan.holds else self.state.skipped(self.now))
        keyed = [(text_of_key(self._scan.key_of(row)), row) for row in rows]
        if self._scan.keeps_place and not self._is_again:
            last = self.state.after
            for _, row in keyed:
                place = self._place(row)
                if last is not None and place < last:
                    raise ValueError(f"rows don't come in the order of their places: {place!r}")
                if last is not None and place == last:
                    raise ValueError(f"two rows have one place, {place!r}: each needs its own")
                last = place
        return [(key, row) for key, row in keyed if key not in skipped]

    def _place(self, row: Any) -> Any:
        """A row's place as it is stored: as JSON has it."""
        return orjson.loads(orjson.dumps(self._scan.place_of(row)))

    async def _work(self, keyed: Sequence[tuple[str, Any]], shard: Shard) -> Outcome:
        try:
            for key, row in keyed:
                if self._is_cautious and not self._may_try(key):
                    return self._turn(PAGE, crashed=True)
                await self._attempt(key, row, shard)
                if self._scan.keeps_place and not self._is_again:
                    self.state.after = self._place(row)
                if self._is_cautious or monotonic() - self._began > SLICE:
                    break
        except _Stop:
            pass
        except StoreUnavailable as error:
            return self._in_trouble(str(error))
        if self._halt:
            log.error("scan.halted", **self._names(), reason=self._halt)
            return Halt(self._halt, self.state.as_json(), (self._done, self._deferred))
        if self._pause is not None:
            return self._turn(REST, max(SHORTEST_SLEEP, self._pause))
        return self._turn(PAGE)

    def _turn(self, stage: str, after: float = 0.0, *, crashed: bool = False) -> Turn:
        rows = self._done, self._deferred
        return Turn(stage, self.state.as_json(), after, crashed, rows)

    def _may_try(self, key: str) -> bool:
        """Whether a row may be tried now; if not, the state notes it as the next one.

        After a crash rows are tried one by one, to find the one that is to blame.
        """
        crashes = self._held.task.crashes
        trying, self.state.trying = self.state.trying, None
        if trying is None or trying[0] != key:
            self.state.trying = (key, crashes)
            return False
        self._killed = trying[1] < crashes
        return True

    _killed = False

    async def _attempt(self, key: str, row: Any, shard: Shard) -> None:
        waits = self.state.deferred.get(key)
        if waits is not None and self._scan.holds and waits.due > self.now:
            self._pause = waits.due - self.now  # woken before its time
            raise _Stop
        if self._killed:
            await self._fail(key, _DIED, "its daemon died while it ran this row, more than once")
            return
        try:
            await worked(self._scan, row, shard)
        except BaseException as error:  # noqa: BLE001  the application's
            what = failed_by(error)
            await self._fail(key, what.error, what.message)
        else:
            self.state.done += 1
            self._measures.done += 1
            self._done += 1
            self.state.deferred.pop(key, None)

    async def _fail(self, key: str, kind: str, message: str) -> None:
        """Defer or bury a row, after an attempt at it has failed."""
        before = self.state.deferred.get(key)
        said = f"{kind}: {message}" if message else kind
        story = Deferred(
            attempts=before.attempts + 1 if before else 1,
            due=0.0,
            fence=before.fence if before else self._held.task.fence,
            error=message_of(said),
        )
        is_new = before is None
        if is_new and self.state.aside >= MOST_ASIDE:
            self._halt = (
                f"{MOST_ASIDE} rows of the shard have failed and wait, the last of {said[:200]}: "
                "see to what they fail of, then redrive this"
            )
            raise _Stop
        delay = self._scan.retry.delay_after(story.attempts, random.random())  # noqa: S311
        names = {**self._names(), "row": key, "error": kind}
        if delay is not None:
            story.due, story.error = self.now + delay, story.error[:ERROR_CHARS]
            self.state.deferred[key] = story
            self._measures.deferred += 1
            self._deferred += 1
            log.info("scan.row_deferred", **names, attempt=story.attempts, after=round(delay, 3))
            if self._scan.holds:
                self._pause = delay
                raise _Stop
            return
        id_ = await self._bury(key, story, kind)
        if id_ is None:
            raise _Stop
        self.state.deferred.pop(key, None)
        self.state.dead[key] = id_
        self.state.died += 1
        self._measures.dead += 1
        log.error("scan.row_buried", **names, attempt=story.attempts, letter=id_)

    async def _bury(self, key: str, story: Deferred, kind: str) -> str | None:
        """Make a dead letter of a row; returns its id, or ``None`` if the shard is lost."""
        record, index = self._held.record, self._held.index
        envelope = record.envelope(index, ROW_RULE, row=orjson.loads(key))
        group = group_of(record.name, index)
        id_ = f"{group}/{key}/{story.fence}"
        error = {"attempt": story.attempts, "stage": None, "error": kind, "message": story.error}
        is_buried = await bury_row(
            self._store_of(group),
            envelope,
            id_,
            self._held.task.fence,
            reason=f"row {key}: {story.error}",
            kind=kind,
            errors=[error],
            attempts=story.attempts,
        )
        return id_ if is_buried else None

    async def _present(self, ids: Sequence[str]) -> set[str]:
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

    def _rest(self) -> Outcome:
        """Sleep: there is nothing more to do for now."""
        now = self.now
        self.state.last_pass = now
        due = self.state.next_due()
        pause = self._scan.idle if due is None else min(self._scan.idle, due - now)
        return self._turn(REST, max(SHORTEST_SLEEP, pause))

    def _trouble_of(self, error: BaseException) -> Outcome:
        """The outcome of an error of the application, or its database, before any row."""
        what = failed_by(error)
        return self._in_trouble(f"{what.error}: {what.message}")

    def _in_trouble(self, words: str) -> Outcome:
        """The page can't be fetched: no row is to blame, so none has failed."""
        before, self.state.trouble = self.state.trouble, message_of(words)
        self.state.troubles += 1
        pause = min(LONGEST_TROUBLE, 2.0 ** min(self.state.troubles - 1, 10))
        tell = log.debug if self.state.trouble == before else log.warning
        tell("scan.in_trouble", **self._names(), error=self.state.trouble, again=pause)
        return self._turn(REST, pause)

    def _names(self) -> dict[str, Any]:
        return {"scan": self._scan.name, "shard": self._held.index}
