"""The schedules of one partition, changed by scripts. Each call may be made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from time import monotonic
from typing import Any, Literal, TypeAlias

from groupflow.core.timing import tick_text
from groupflow.schedule.deciding import Decision
from groupflow.schedule.definitions import Definition, Loaded
from groupflow.store.client import Argument, StoreClient
from groupflow.store.clock import microseconds
from groupflow.store.enqueue import UNBOUNDED, no_room
from groupflow.store.epochs import Seen
from groupflow.store.scripts import LAYOUT, PRELUDE, TAKING, AnyVerb

ROWS = (*PRELUDE, "schedule/rows")
MAKING = (*TAKING, "schedule/rows", "schedule/making")


class ScheduleVerb(AnyVerb):
    """The scripts by which daemons make ticks."""

    PRESENT = "present", ROWS
    DEFINE = "define", (*ROWS, LAYOUT)
    RETIRE = "retire", (*ROWS, LAYOUT)
    TICK = "tick", MAKING


PresentedState: TypeAlias = Literal["OURS", "NEW", "CHANGED", "OUTDONE"]
"""Of a row; see `present.lua`."""
TickVerdict: TypeAlias = Literal["MADE", "EARLY", "PASSED", "OTHER"]
"""Of a tick; see `tick.lua`."""

KEPT = 7 * 86_400.0  # seconds after which a schedule ends that no daemon presents


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule as it lies in the store; times are microseconds by Redis's clock."""

    state: PresentedState
    due: int
    decided: int  # the last tick of which anything was decided
    by: str  # the daemon that presented it last
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Ticked:
    """What became of a decision."""

    verdict: TickVerdict
    now: int
    due: int  # when it is due next
    ids: list[str]  # the tasks made
    skipped: int  # ticks left out, since the last one isn't over
    is_paused: bool
    full: list[str]  # dead letters in place of tasks, since their group was full


@dataclass(frozen=True, slots=True)
class Retired:
    """What another partition had of a schedule."""

    is_ours: bool  # False: the definition of a configuration that was loaded later counts there
    due: int
    decided: int
    facts: bytes  # for `ScheduleTable.define`


class ScheduleTable:
    """A partition's schedules, for one daemon."""

    def __init__(
        self,
        client: StoreClient,
        daemon: str,
        *,
        dedup_window: float = 3600.0,
        delayed_memory: int = UNBOUNDED,
        seen: Seen | None = None,
    ) -> None:
        """Binds the connection, and the arguments of an enqueue (see `Enqueuer`)."""
        self._client = client
        self._seen = seen or Seen()
        self._daemon = daemon
        self._front: tuple[Argument, ...] = (
            "",  # no claim follows right behind a tick: all daemons are woken
            microseconds(dedup_window),
            token_hex(16),
            delayed_memory,
            no_room(delayed_memory),
        )
        self._ahead = 0.0  # seconds of Redis's clock ahead of the monotonic one
        self._is_known = False
        self._loaded: dict[str, tuple[float, int]] = {}

    @property
    def now(self) -> int:
        """Redis's clock, as estimated from the last answer."""
        return microseconds(monotonic() + self._ahead)

    def _note(self, now: int, sent: float) -> None:
        self._ahead = now / 1_000_000 - (sent + monotonic()) / 2
        self._is_known = True

    async def look(self) -> None:
        """Read Redis's clock, unless it is known."""
        if not self._is_known:
            await self.present([], may_end=False)

    def _when_loaded(self, schedule: Loaded) -> int:
        """When its configuration was loaded, by Redis's clock; the same at each call."""
        name = schedule.definition.name
        at, moment = self._loaded.get(name, (0.0, 0))
        if at != schedule.at:
            moment = microseconds(schedule.at + self._ahead)
            self._loaded[name] = schedule.at, moment
        return moment

    async def present(
        self, schedules: Sequence[Loaded], *, may_end: bool
    ) -> tuple[dict[str, StoredSchedule], list[str]]:
        """Say which schedules this daemon has there.

        Args:
            schedules: of its configuration, all of them.
            may_end: whether schedules end that no daemon presents any more.

        Returns:
            The row of each, and the names of those that have ended.

        Raises:
            StoreUnavailable: no answer.
        """
        arguments: list[Argument] = [self._daemon, microseconds(KEPT) if may_end else ""]
        for each in schedules:
            of = each.definition
            arguments += [of.name, of.digest, of.timing_digest, self._when_loaded(each)]
        sent = monotonic()
        now, rows, ended = await self._client.run(ScheduleVerb.PRESENT, *arguments)
        self._note(now, sent)
        names = (each.definition.name for each in schedules)
        return dict(zip(names, map(_row, rows), strict=True)), [each.decode() for each in ended]

    async def define(self, schedule: Loaded, due: int, facts: bytes = b"") -> int | None:
        """Write a definition.

        Args:
            schedule: the definition.
            due: when it is due, if it begins or its timing has changed.
            facts: what `retire` found.

        Returns:
            When it is due now; ``None`` if that of another configuration counts.

        Raises:
            StoreFull: Redis is out of memory.
            StoreUnavailable: no answer.
        """
        of = schedule.definition
        _, is_written, at = await self._client.run(
            ScheduleVerb.DEFINE,
            self._daemon,
            of.name,
            of.digest,
            of.timing_digest,
            self._when_loaded(schedule),
            due,
            facts,
            of.told,
            of.interval(due),
            *of.message,
        )
        return int(at) if is_written else None

    async def retire(self, schedule: Loaded) -> Retired:
        """End a schedule there, since it is to lie in another partition.

        Raises:
            StoreUnavailable: no answer.
        """
        of = schedule.definition
        await self.look()
        is_ours, due, decided, facts = await self._client.run(
            ScheduleVerb.RETIRE, self._daemon, of.name, of.digest, self._when_loaded(schedule)
        )
        return Retired(bool(is_ours), due, decided, facts)

    async def tick(self, decided: Sequence[tuple[Definition, int, Decision]]) -> list[Ticked]:
        """Carry out decisions, each about a schedule that was due at that time.

        Raises:
            StoreFull: Redis is out of memory; some may have been carried out.
            StoreUnavailable: no answer; some may have been carried out.
        """
        calls: list[tuple[ScheduleVerb, list[Argument]]] = []
        for definition, due, decision in decided:
            ticks = [part for tick in decision.make for part in (f"{tick:016d}", tick_text(tick))]
            arguments: list[Argument] = [
                *self._front,
                definition.name,
                definition.digest,
                f"{due:016d}",
                decision.until,
                decision.next_at,
                definition.interval(decision.next_at),
                decision.missed,
                *ticks,
            ]
            calls.append((ScheduleVerb.TICK, arguments))
        sent = monotonic()
        replies = await self._client.run_all(calls)
        found = [_ticked(reply) for reply in replies]
        self._seen.sequence = max(self._seen.sequence, *(reply[-1] for reply in replies))
        self._note(found[-1].now, sent)
        return found


def _row(reply: Sequence[Any]) -> StoredSchedule:
    state, due, decided, by, is_paused = reply
    return StoredSchedule(state.decode(), due, decided, by.decode(), bool(is_paused))


def _ticked(reply: Sequence[Any]) -> Ticked:
    verdict, now, due, ids, skipped, is_paused, full, _ = reply
    made, refused = ([id_.decode() for id_ in each] for each in (ids, full))
    return Ticked(verdict.decode(), now, due, made, skipped, bool(is_paused), refused)
