"""Schedules: due times, what became of ticks; run, pause, resume, drop.

Each lies in one partition, that of its ticks' group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, Literal, TypeAlias, TypeVar

import orjson

from groupflow.core.errors import GroupflowError
from groupflow.core.timing import tick_text
from groupflow.operate.groups import paused_by
from groupflow.operate.namespace import Namespace
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.operate.tasks import find_task
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.enqueue import UNBOUNDED, no_room

RunOutcome: TypeAlias = Literal[
    "queued", "running", "delayed",
    "done", "dead", "cancelled", "expired", "superseded", "dropped", "over",
]  # fmt: skip
"""What became of a run's task; ``over``: it has ended, and isn't in the history any more."""

_Answer = TypeVar("_Answer")

ABSENT = 60.0
"""Seconds without a daemon that has it, until a schedule counts as without one."""
_TOLD = ("cron", "every", "timezone", "type", "group", "tenant", "overlap", "missed")
_DEDUP_WINDOW = 3600.0  # seconds for which the id of a tick made by hand is known
RIVALRY = 60.0  # seconds for which a definition that doesn't count is shown


@dataclass(frozen=True, slots=True)
class Run:
    """One task that a schedule has made."""

    at: float  # when it was due, or an operator asked for it, Unix seconds
    task: str  # the id of its task
    kind: Literal["tick", "now"]  # ``now``: an operator asked for it
    outcome: RunOutcome
    ended_at: float | None  # Unix seconds; None if it isn't over


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, as the store has it. Times are Unix seconds by Redis's clock."""

    name: str
    next_at: float
    last_at: float | None  # when the last run was due; None before the first
    last_task: str | None
    last_outcome: RunOutcome | None
    missed_total: int  # ticks that weren't made when they were due
    paused: bool
    ticks_total: int  # ticks that became tasks
    skipped_total: int  # ticks left out, since the last one wasn't over
    paused_by: str | None
    paused_since: float | None
    cron: str | None
    every: float | None  # seconds
    timezone: str
    type: str
    group: str | None  # of its tasks
    tenant: str | None
    overlap: str
    missed: str
    overdue: float  # seconds for which the next tick should have been made; 0 if it isn't due
    interval: float  # seconds from the next tick to the one behind it
    daemon: str  # the one that presented it last
    daemon_age: float  # seconds since then
    # a daemon that has another definition of it, which doesn't count; None if there is none
    rival: str | None
    runs: list[Run]  # the newest first, 20 at most

    @property
    def is_nobodys(self) -> bool:
        """Whether no daemon that runs has it."""
        return self.daemon_age > ABSENT


class NoSchedule(GroupflowError):
    """There is no schedule of that name."""


class StillOpen(GroupflowError):
    """A schedule whose ticks mustn't overlap has one that isn't over."""


class TickRefused(GroupflowError):
    """A tick that an operator made is a dead letter, since its group is full."""


async def read_schedules(namespace: Namespace) -> list[Schedule]:
    """All schedules, by name.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(schedules_in)
    return sorted((each for part in answers.all for each in part), key=lambda each: each.name)


async def schedules_in(client: StoreClient) -> list[Schedule]:
    """All schedules that lie in a partition.

    Raises:
        StoreUnavailable: no answer.
    """
    reply = named(await client.run(OperatorVerb.SCHEDULES))
    found = [_schedule(named(row), reply["at"]) for row in reply["schedules"]]
    return [await _with_states(client, each) for each in found]


async def _with_states(client: StoreClient, schedule: Schedule) -> Schedule:
    """The same, with the state of its last task now, if that isn't over."""
    if schedule.last_task is None or schedule.last_outcome != "queued":
        return schedule
    found = await find_task(client, schedule.last_task)
    if found is None or found.state not in ("queued", "running", "delayed"):
        return schedule
    last, *others = schedule.runs
    last = replace(last, outcome=found.state)
    return replace(schedule, last_outcome=last.outcome, runs=[last, *others])


def _schedule(facts: Mapping[str, Any], now: int) -> Schedule:
    told = orjson.loads(facts["told"])
    runs = [_run(*each) for each in orjson.loads(facts["runs"])]
    last = runs[0] if runs else None
    by, since = paused_by(facts["paused"]) if "paused" in facts else (None, None)
    is_rivalled = now - int(facts.get("rival_at", 0)) < microseconds(RIVALRY)
    return Schedule(
        name=facts["name"],
        next_at=seconds(facts["due"]),
        last_at=last.at if last else None,
        last_task=last.task if last else None,
        last_outcome=last.outcome if last else None,
        missed_total=int(facts.get("missed", 0)),
        ticks_total=int(facts.get("ticks", 0)),
        skipped_total=int(facts.get("skipped", 0)),
        paused=by is not None,
        paused_by=by,
        paused_since=since,
        **{name: told[name] for name in _TOLD},
        overdue=0.0 if by is not None else max(0.0, seconds(now - facts["due"])),
        interval=seconds(facts["interval"]),
        daemon=facts["by"],
        daemon_age=max(0.0, seconds(now - int(facts["presented"]))),
        rival=facts.get("rival") if is_rivalled else None,
        runs=runs,
    )


def _run(at: str, task: str, kind: Literal["tick", "now"], outcome: str, ended: str) -> Run:
    known: Any = outcome or "queued"
    return Run(seconds(at), task, kind, known, seconds(ended) if ended else None)


class Schedules:
    """What operators do to the schedules of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def run(self, name: str) -> str:
        """Make a tick now, due or not; returns the id of its task.

        Raises:
            NoSchedule: nothing is known of it.
            StillOpen: its ticks mustn't overlap, and the last one isn't over.
            TickRefused: its group is full.
            StoreFull: Redis is out of memory.
            StoreUnavailable: no answer; it may have been made.
        """

        async def make(client: StoreClient) -> tuple[bytes, bytes] | None:
            moment = int(named(await client.run(OperatorVerb.SCHEDULES))["at"])
            window, bound = microseconds(_DEDUP_WINDOW), (UNBOUNDED, no_room(UNBOUNDED))
            tick = (name, f"{moment:016d}", tick_text(moment))
            verb = OperatorVerb.SCHEDULE_RUN
            state, id_ = await client.run(verb, "", window, token_hex(16), *bound, *tick)
            return None if state == b"UNKNOWN" else (state, id_)

        state, packed = await self._where_it_is(name, make)
        id_ = packed.decode()
        if state == b"FULL":
            raise TickRefused(
                f"the group of {name} is full, so its tick {id_} is a dead letter: redrive that "
                "once fewer tasks wait, or raise max_queued of the group's rule"
            )
        if state != b"MADE":
            raise StillOpen(
                f'{name} has overlap = "skip", and its last task {id_} isn\'t over yet: wait for '
                "its end, or drop it"
            )
        return id_

    async def pause(self, name: str, by: str) -> bool:
        """Make no ticks of it; returns whether it wasn't paused already. Errors as of `run`."""
        return await self._change(name, OperatorVerb.SCHEDULE_HOLD, by)

    async def resume(self, name: str) -> bool:
        """Let it go on; returns whether it was paused. Errors as of `run`."""
        return await self._change(name, OperatorVerb.SCHEDULE_HOLD, "")

    async def drop(self, name: str) -> None:
        """Forget it, until a daemon has it. Errors as of `run`."""
        await self._change(name, OperatorVerb.SCHEDULE_DROP)

    async def _change(self, name: str, verb: OperatorVerb, *arguments: str) -> bool:
        async def change(client: StoreClient) -> bool | None:
            reply = await client.run(verb, name, *arguments)
            return None if reply < 0 else bool(reply)

        return await self._where_it_is(name, change)

    async def _where_it_is(
        self, name: str, act: Callable[[StoreClient], Awaitable[_Answer | None]]
    ) -> _Answer:
        found = await self._namespace.seek(act)
        if not found:
            raise NoSchedule(
                f"no schedule has the name {name!r}: a daemon has to run with it in its "
                "configuration"
            )
        return next(iter(found.values()))
