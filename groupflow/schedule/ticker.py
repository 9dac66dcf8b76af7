"""tick: makes the ticks of one partition's schedules, each once, by the daemon that comes first.

It sleeps until the next one is due by Redis's clock. Meanwhile it only asks, every few seconds,
whether its schedules are still its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import structlog

from groupflow.core.errors import GroupflowError, ServerUnreachable, StoreFull, StoreUnavailable
from groupflow.core.measures import ScheduleMeasures
from groupflow.core.timing import tick_text
from groupflow.crashpoints import crash_point
from groupflow.schedule.deciding import ON_TIME, Decision, decide, first_due
from groupflow.schedule.definitions import Definition, Loaded, loaded_anew
from groupflow.schedule.table import Retired, ScheduleTable, StoredSchedule, Ticked
from groupflow.store.clock import seconds

log = structlog.get_logger("groupflow.schedule")

PRESENT = 10.0  # seconds between two calls that say which schedules a daemon has
SETTLED = 600.0  # the same without any; and until it ends those that no daemon presents
_AT_ONCE = 50  # schedules whose ticks are made in one round trip
_PRESENTED = 100  # schedules a script
# Of our own, as it may take long, and handlers may hold all threads of the loop's.
_DECIDING = ThreadPoolExecutor(1, thread_name_prefix="groupflow-ticks")
_BEHIND = 500  # µs; a little late rather than early, which would cost one more call


class Ticker:
    """One partition's schedules, in one daemon."""

    def __init__(
        self, table: ScheduleTable, others: Sequence[ScheduleTable], measures: ScheduleMeasures
    ) -> None:
        """Begins without schedules; `others` are the tables of the other partitions."""
        self._table = table
        self._others = others
        self._measures = measures
        self._schedules: dict[str, Loaded] = {}
        self._due: dict[str, int] = {}  # of those whose ticks this daemon makes
        self._outdone: set[str] = set()
        self._began = monotonic()
        self._present_at = 0.0  # monotonic
        self._hindrance: GroupflowError | None = None  # why none can begin, in this pass

    def adopt(self, schedules: Iterable[Loaded]) -> None:
        """Use these from now on; the next pass presents them."""
        self._schedules = {each.definition.name: each for each in schedules}
        self._due = {}
        self._present_at = 0.0

    async def run_once(self) -> float:
        """Make the due ticks. Returns the seconds until the next one.

        Raises:
            StoreUnavailable: no answer; the next pass makes them, or they were made.
            StoreFull: Redis is out of memory.
        """
        await self._table.look()
        if monotonic() >= self._present_at:
            presented = self._schedules
            await self._present()
            if presented is self._schedules:  # else a reload has come, and asks at once
                self._present_at = monotonic() + (PRESENT if presented else SETTLED)
        now = self._table.now
        own = ((self._schedules[name].definition, moment) for name, moment in self._due.items())
        due = [each for each in own if each[1] <= now]
        for n in range(0, len(due), _AT_ONCE):
            await self._make(due[n : n + _AT_ONCE], now)
        return self._pause()

    def _pause(self) -> float:
        left = self._present_at - monotonic()
        if self._due:
            nearest = min(self._due.values())
            left = min(left, seconds(nearest + _BEHIND - self._table.now))
        return max(0.0, left)

    async def _present(self) -> None:
        presented, self._hindrance = self._schedules, None
        schedules = [*presented.values()]
        rows: dict[str, StoredSchedule] = {}
        may_end = monotonic() - self._began > SETTLED
        for n in range(0, max(1, len(schedules)), _PRESENTED):
            some = schedules[n : n + _PRESENTED]
            found, ended = await self._table.present(some, may_end=may_end)
            rows |= found
            for name in ended:
                log.warning("schedule.ended", schedule=name, reason="no daemon has it any more")
        own: dict[str, int] = {}
        for name, loaded in presented.items():
            due = await self._claimed(loaded, rows[name])
            if due is not None:
                own[name] = due
        if presented is self._schedules:  # no reload came between
            self._due = own

    async def _claimed(self, loaded: Loaded, row: StoredSchedule) -> int | None:
        """When it is due, if this daemon makes its ticks; else ``None``."""
        definition = loaded.definition
        due: int | None = None
        match row.state:
            case "OURS":
                due = row.due
            case "CHANGED":
                first = first_due(definition, self._table.now, row.due, row.decided)
                due = await self._table.define(loaded, first)
                self._say_begun("schedule.changed", definition, due)
            case "NEW":
                if self._hindrance is None:  # else each would wait for the same partition
                    try:
                        due = await self._begin(loaded)
                    except (StoreUnavailable, StoreFull, ServerUnreachable) as error:
                        self._hindrance = error
                if self._hindrance is not None:
                    # Schedules that are here already go on meanwhile.
                    why = str(self._hindrance)
                    log.warning("schedule.waits", schedule=definition.name, error=why)
                    return None
                self._say_begun("schedule.begun", definition, due)
        if due is None:
            self._say_outdone(definition.name, row.by)
        else:
            self._outdone.discard(definition.name)
        return due

    async def _begin(self, loaded: Loaded) -> int | None:
        """Begin a schedule here, once no other partition can have ticks of it any more.

        Raises:
            StoreUnavailable: another partition does not answer.
            StoreFull: Redis is out of memory, maybe there.
            ServerUnreachable: another partition refused the credentials.
        """
        asking = (each.retire(loaded) for each in self._others)
        found: list[Retired] = []
        for answer in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        if not all(each.is_ours for each in found):
            return None
        nothing = Retired(is_ours=True, due=0, decided=0, facts=b"")
        before = max(found, key=lambda each: each.decided, default=nothing)
        if not before.decided:
            before = nothing
        first = first_due(loaded.definition, self._table.now, before.due, before.decided)
        return await self._table.define(loaded, first, before.facts)

    def _say_begun(self, event: str, definition: Definition, due: int | None) -> None:
        if due is not None:
            log.info(event, schedule=definition.name, next=tick_text(due))

    def _say_outdone(self, name: str, by: str) -> None:
        if name not in self._outdone:
            log.warning(
                "schedule.outdone",
                schedule=name,
                by=by,
                remedy="another daemon has another definition of it, of a configuration that was "
                "loaded later, and that one counts: give both the same",
            )
        self._outdone.add(name)

    async def _make(self, due: Sequence[tuple[Definition, int]], now: int) -> None:
        decided = [(*each, await self._decide(*each, now)) for each in due]
        crash_point("before_tick")
        found = await self._table.tick(decided)
        crash_point("after_tick", any(each.ids for each in found))
        for (definition, _, decision), ticked in zip(decided, found, strict=True):
            self._heed(definition, decision, ticked)

    async def _decide(self, definition: Definition, due: int, now: int) -> Decision:
        if now - due <= ON_TIME:
            return decide(definition, due, now)
        loop = asyncio.get_running_loop()
        try:
            deciding = loop.run_in_executor(_DECIDING, decide, definition, due, now)
        except RuntimeError:  # no thread can be started
            return decide(definition, due, now)
        return await deciding

    def _heed(self, definition: Definition, decision: Decision, ticked: Ticked) -> None:
        self._due[definition.name] = ticked.due  # until the next pass, where a reload came between
        if ticked.verdict == "OTHER":
            self._due.pop(definition.name, None)
            self._present_at = 0.0
        if ticked.verdict != "MADE" or ticked.is_paused:
            return
        measures = self._measures
        measures.made += len(ticked.ids)
        measures.missed += decision.missed + len(ticked.full)
        measures.skipped += ticked.skipped
        for tick in decision.make[: len(ticked.ids)]:
            measures.lateness.observe(seconds(ticked.now - tick))
        log.debug("schedule.ticked", schedule=definition.name, tasks=ticked.ids)
        if decision.missed:
            log.warning(
                "schedule.missed",
                schedule=definition.name,
                missed=decision.missed,
                until=tick_text(decision.until),
                made=len(ticked.ids),
            )
        if ticked.full:
            log.warning(
                "schedule.group_full",
                schedule=definition.name,
                group=definition.group,
                dead=ticked.full,
                remedy="redrive them once fewer wait in the group than its rule's max_queued",
            )
        if ticked.skipped:
            log.info("schedule.skipped", schedule=definition.name, ticks=ticked.skipped)


class Tickers(list[Ticker]):
    """The tickers of all partitions, which share a configuration's schedules."""

    def __init__(self, tables: Sequence[ScheduleTable], measures: ScheduleMeasures) -> None:
        """Takes the tables in the order of the partitions."""
        self._schedules: dict[str, Loaded] = {}
        for table in tables:
            others = [each for each in tables if each is not table]
            self.append(Ticker(table, others, measures))

    def adopt(self, definitions: list[Definition]) -> None:
        """Use a configuration that was loaded just now."""
        self._schedules = loaded_anew(self._schedules, definitions, monotonic())
        parts: list[list[Loaded]] = [[] for _ in self]
        for each in self._schedules.values():
            parts[each.definition.place(len(parts))].append(each)
        for ticker, part in zip(self, parts, strict=True):
            ticker.adopt(part)
