"""Schedules of one store: due times, what became of ticks; run, pause, resume, drop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.core.timing import tick_text
from groupflow.operate.groups import paused_by
from groupflow.operate.replies import named
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import find_task
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds, seconds
from groupflow.store.enqueue import UNBOUNDED, no_room

Outcome: TypeAlias = Literal[
    "queued", "running", "delayed", "done", "dead", "superseded", "dropped", "over"
]
"""What became of a run's task; ``over``: it has ended, and isn't in the history any more."""

ABSENT = 60.0
"""Seconds without a daemon that has it, until a schedule counts as without one."""
RIVALRY = 60.0  # seconds for which a definition that doesn't count is shown


@dataclass(frozen=True, slots=True)
class Run:
    """One task that a schedule has made."""

    at: float  # when it was due, or an operator asked for it, Unix seconds
    task: str  # the id of its task
    kind: Literal["tick", "now"]  # ``now``: an operator asked for it
    outcome: Outcome
    ended_at: float | None  # Unix seconds; None if it isn't over


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, as the store has it. Times are Unix seconds by Redis's clock."""

    name: str
    next_at: float
    last_at: float | None  # when the last run was due; None before the first
    last_task: str | None
    last_outcome: Outcome | None
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


async def read_schedules(client: StoreClient) -> list[Schedule]:
    """All schedules that lie in one store.

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
        paused=by is not None,
        ticks_total=int(facts.get("ticks", 0)),
        skipped_total=int(facts.get("skipped", 0)),
        paused_by=by,
        paused_since=since,
        cron=told["cron"],
        every=told["every"],
        timezone=told["timezone"],
        type=told["type"],
        group=told["group"],
        tenant=told["tenant"],
        overlap=told["overlap"],
        missed=told["missed"],
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


class OneStoresSchedules:
    """What operators do to the schedules of one store."""

    def __init__(self, client: StoreClient, dedup_window: float = 3600.0) -> None:
        self._client = client
        self._dedup_window = dedup_window  # seconds

    async def run(self, name: str) -> tuple[bool, str] | None:
        """Make a tick now.

        Returns:
            Whether it was made, and the id of its task; else that of the one that isn't over yet.
            ``None`` if there is no such schedule here.

        Raises:
            StoreFull: Redis is out of memory.
            StoreUnavailable: no answer; it may have been made.
        """
        moment = int(named(await self._client.run(OperatorVerb.SCHEDULES))["at"])
        state, id_ = await self._client.run(
            OperatorVerb.SCHEDULE_RUN,
            "",
            microseconds(self._dedup_window),
            token_hex(16),
            UNBOUNDED,
            no_room(UNBOUNDED),
            name,
            f"{moment:016d}",
            tick_text(moment),
        )
        return None if state == b"UNKNOWN" else (state == b"MADE", id_.decode())

    async def pause(self, name: str, by: str) -> bool | None:
        """Make no ticks of it; returns whether it wasn't paused. ``None`` if there is none."""
        return self._changed(await self._client.run(OperatorVerb.SCHEDULE_HOLD, name, by))

    async def resume(self, name: str) -> bool | None:
        """Let it go on; returns whether it was paused. ``None`` if there is none."""
        return self._changed(await self._client.run(OperatorVerb.SCHEDULE_HOLD, name, ""))

    async def drop(self, name: str) -> bool | None:
        """Forget it. ``None`` if there is no such schedule here."""
        return bool(await self._client.run(OperatorVerb.SCHEDULE_DROP, name)) or None

    def _changed(self, reply: int) -> bool | None:
        return None if reply < 0 else bool(reply)
