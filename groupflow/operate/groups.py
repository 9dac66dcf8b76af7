"""Groups: pause and resume them; say why one isn't moving, and what waits in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.core.progress import Progress
from groupflow.operate.namespace import Namespace
from groupflow.operate.reasons import (
    HELD_BACK,
    OUTBOX_FULL,
    delay_reason,
    duration,
    hour_of,
    pool_reason,
    quarantine_reason,
    quiet_reason,
    silence_reason,
    tenant_reason,
    type_reason,
    unknown_reason,
    waiting,
)
from groupflow.operate.requests import CancelRequest
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.clock import microseconds, seconds
from groupflow.store.progress import progress_of
from groupflow.store.pulling import puller_of
from groupflow.store.task_state import TaskState

GroupState: TypeAlias = Literal["idle", "ready", "running", "delayed", "parked", "paused"]
_EVERYTHING = ("everything", "everything_ends")
ALL = ""  # in place of a group's name: everything


@dataclass(frozen=True, slots=True)
class Holder:
    """The worker that runs a group's task."""

    daemon: str
    worker: str  # within the daemon
    fence: int
    lease_left: float  # seconds until others may take over, if the daemon doesn't renew


@dataclass(frozen=True, slots=True)
class Why:
    """One group's state at this instant, and the reason for it."""

    group: str
    state: GroupState  # the one state that it is in
    queued: int  # how many tasks wait in it
    # the id of the task that runs, or else of the next one; None if there is neither
    head: str | None
    holder: Holder | None = None  # the worker that runs the head, if it runs
    since: float | None = None  # Unix seconds since when the state holds, if known
    until: float | None = None  # Unix seconds until when it will hold, if known
    reason: str = ""
    running: int = 0  # how many of its tasks run; `holder` and `since` are of the first of them
    concurrency: int = 1  # how many may
    behind: str | None = None  # the dead letter that parked it
    by_hand_until: float | None = None  # until when its limits by hand hold
    max_queued: int = 0  # how many tasks may wait in it, as the rule of its head says; 0 for any
    is_full: bool = False  # whether so many wait: a further message becomes a dead letter
    crashes: int = 0  # claims of its head that ended with the death of their daemon
    lost_leases: int = 0  # and those that ended with a lost lease, without a known death
    progress: Progress | None = None  # how far the head has got, if it runs and its handler says so
    aside: int = 0  # how many of its tasks are delayed and hold up no other
    is_paused: bool = False  # whether an operator has paused it: what runs goes on to its end

    def reason_of(self, id_: str, state: str, own: str | None) -> str | None:
        """Why a task waits in the group, by its id, its state and its own reason."""
        said = f"is {self.state}: {self.reason}"
        if state == "queued" and self.head:
            place = "next" if self.head == id_ else f"behind {self.head}"
            return f"{place} in its group, which {said}"
        is_held = state == "delayed" and self.state in {"paused", "parked"}
        return f"{own}; its group {said}" if is_held else own


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that waits in a group."""

    id: str
    type: str
    tenant: str | None
    enqueued_at: float  # when it came, Unix seconds
    attempt: int = 1  # the next attempt
    crashes: int = 0  # claims of it that ended with the death of their daemon
    lost_leases: int = 0  # and those that ended with a lost lease, without a known death
    stage: str | None = None  # the stage that it has reached
    due: float | None = None  # Unix seconds before which it may not run, if it has to wait
    # one entry for each failed attempt that is remembered, oldest first, without its traceback
    errors: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lane:
    """Tasks that wait in a group: how many in all, and some of them, the next to run first."""

    at: float
    total: int
    tasks: list[Waiting]


def paused_by(note: str) -> tuple[str, float]:
    """The operator who paused a group, or everything, and since when, from the note."""
    by, since = orjson.loads(note)
    return by, seconds(since)


class Groups:
    """The groups of a namespace. Each lies in one partition; `ALL` means all partitions."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def pause(self, group: str, by: str, for_: float | None = None) -> bool:
        """Hold a group, or everything (`ALL`): for so many seconds, or until it is resumed.

        Returns:
            Whether anything changed: it wasn't paused, or its pause was to end at another time.

        Raises:
            StoreUnavailable: its partition is away; for `ALL`, one is, and the rest is paused.
        """
        length = "" if for_ is None else microseconds(for_)
        return await self._change(group, OperatorVerb.PAUSE, by, length)

    async def resume(self, group: str) -> bool:
        """Let a group, or everything (`ALL`), go on.

        Returns:
            Whether it was paused, or some of it.

        Raises:
            StoreUnavailable: its partition is away; for `ALL`, one is, and the rest goes on.
        """
        return await self._change(group, OperatorVerb.RESUME)

    async def _change(self, group: str, verb: OperatorVerb, *arguments: str | int) -> bool:
        if group != ALL:
            return bool(await self._namespace.run_at(group, verb, group, *arguments))
        return any(await self._namespace.run_everywhere(verb, ALL, *arguments))

    async def why(
        self,
        group: str,
        *,
        max_queued: Mapping[str, int] | None = None,
        with_words: bool = True,
    ) -> Why:
        """The state that a group is in, and why.

        Without words the reason has only the kinds of errors, not the text of handlers and dead
        letters. `max_queued` is, by rule, how many tasks may wait in a group.

        Raises:
            StoreUnavailable: its partition is away.
        """
        asked = "1" if max_queued else ""
        facts = named(await self._namespace.run_at(group, OperatorVerb.WHY, group, asked))
        most = (max_queued or {}).get(facts.get("rule", ""), 0)
        return _with_bounds(_story(group, facts, with_words), facts, most)

    async def lane(self, group: str, *, passed: int = 0, limit: int = 50) -> Lane:
        """The tasks that wait in a group behind the first `passed`, the next to run first.

        Raises:
            StoreUnavailable: its partition is away.
        """
        reply = await self._namespace.run_at(group, OperatorVerb.LANE, group, passed, limit)
        facts = named(reply, "at")
        return Lane(facts["at"], facts["total"], [_waiting(row) for row in facts["tasks"]])


def _story(group: str, facts: Mapping[str, Any], with_words: bool) -> Why:
    """The state and the reason that follow from what `why.lua` answers."""
    task_state = TaskState.of(facts["task_state"])
    answer = partial(
        Why,
        group,
        queued=facts["queued"],
        head=facts.get("head"),
        running=facts["running"],
        concurrency=facts.get("concurrency", 1),
        crashes=task_state.deaths,
        lost_leases=task_state.lost_leases,
        aside=facts["aside"],
        is_paused="paused" in facts,
    )
    hold = facts.get("paused") or (facts["queued"] and facts.get("everything_paused"))
    if "daemon" in facts:
        told = _running(answer, facts, task_state, with_words=with_words)
        behind = f"; no other begins: {_paused(answer, facts, hold).reason}" if hold else ""
        return replace(told, reason=f"{told.reason}{behind}")
    if hold:
        told = _paused(answer, facts, hold)
        if "parked" not in facts:
            return told
        behind = orjson.loads(facts["parked"])[0]
        also = f"{told.reason}; it is parked too, behind dead letter {behind}: redrive or drop it"
        return replace(told, reason=also, behind=behind)
    if "parked" in facts:
        id_, at, words = orjson.loads(facts["parked"])
        said = f" ({words})" if with_words else ""
        reason = f"parked behind dead letter {id_}{said}: redrive or drop it"
        return answer(state="parked", reason=reason, since=seconds(at), behind=id_)
    if "until" in facts:
        until = seconds(facts["until"])
        left = until - seconds(facts["now"])
        reason = (
            _limit_reason(facts)
            or quiet_reason(task_state)
            or unknown_reason(task_state)
            or delay_reason(task_state, left, with_words)
        )
        return answer(state="delayed", reason=reason, until=until)
    return _in_line(answer, facts, task_state)


def _in_line(answer: Callable[..., Why], facts: Mapping[str, Any], task_state: TaskState) -> Why:
    """For a group that nothing of its own holds."""
    now, limit = seconds(facts["now"]), named(facts.get("type", facts.get("tenant", ())))
    if "type" in facts:
        behind = f"behind another group of type {limit['name']}"
        return _in_turn(answer, limit, limit["waiting"], type_reason(limit, now), behind)
    if "tenant" in facts:
        behind = f"for the turn of tenant {limit.get('name', '-')}"
        return _in_turn(answer, limit, limit["groups"], tenant_reason(limit, now), behind)
    if "ready" not in facts:
        aside = f", apart from {facts['aside']:,} that are delayed" if facts["aside"] else ""
        return answer(state="idle", reason=f"nothing waits in it{aside}")
    if "recovering" in facts:
        since, until = (seconds(int(each)) for each in facts["recovering"])
        return answer(state="ready", reason=HELD_BACK, since=since, until=until)
    reason = "its head may be claimed: all workers are busy, or none is running"
    if said := pool_reason(task_state, facts.get("pullers", 0)):
        reason = f"its head may be claimed: {said}"
    elif "outbox_full" in facts:
        reason = OUTBOX_FULL
    elif task_state.crashes:
        reason = quarantine_reason(task_state, [name.decode() for name in facts["busy"]])
    return answer(state="ready", reason=reason)


def _paused(answer: Callable[..., Why], facts: Mapping[str, Any], hold: str) -> Why:
    by, since = paused_by(hold)
    what, ends = ("the group", "pause_ends") if "paused" in facts else _EVERYTHING
    reason, until = f"{by} paused {what}", None
    if ends in facts:
        until = seconds(facts[ends])
        left = max(0.0, until - seconds(facts["now"]))
        reason += f", which goes on by itself in {duration(left)}"
    return answer(state="paused", reason=reason, since=since, until=until)


def _running(
    answer: Callable[..., Why],
    facts: Mapping[str, Any],
    task_state: TaskState,
    *,
    with_words: bool,
) -> Why:
    left, where = seconds(facts["lease_left"]), f"{facts['daemon']}, {facts['worker']}"
    holder = Holder(facts["daemon"], facts["worker"], int(facts["fence"]), round(left, 3))
    if "since" not in facts:
        reason = f"its lock says that {where} runs a task, whose checkpoint says nothing"
        reason += ": somebody changed keys by hand"
        return answer(state="running", reason=reason, holder=holder)
    since, unheard = seconds(facts["since"]), seconds(facts["unheard"])
    silence = silence_reason(facts["daemon"], left, unheard)
    said = f"has {duration(left)} left" if left > 0 else f"ran out {duration(-left)} ago"
    lease = f"its lease {said}" + (silence and f"; {silence}")
    if puller := puller_of(facts["daemon"]):
        reason = (
            f"held by {puller[1]} since {hour_of(since)}: attempt {task_state.attempt} of task "
            f"{facts['head']}, from pool {puller[0]}; {lease}"
        )
    else:
        reason = (
            f"attempt {task_state.attempt} of task {facts['head']} runs on {where}, for "
            f"{duration(seconds(facts['now']) - since)}; {lease}"
        )
    progress = progress_of(facts.get("progress"), seconds(facts["now"]))
    if progress is not None:
        progress = progress if with_words else progress.without_words()
        reason += f"; it has done {progress.words()}"
    if (most := facts.get("concurrency", 1)) > 1 or facts["running"] > 1:
        reason += f"; of the group run {facts['running']} of {most}"
    if limited := _limit_reason(facts):
        reason += f"; it is {limited}"
    if asked := facts.get("cancel"):
        request = CancelRequest.of(orjson.loads(asked))
        reason += f"; it {request.words(with_reason=with_words)}"
    until = seconds(facts["until"]) if "until" in facts else None
    return answer(
        state="running", reason=reason, holder=holder, since=since, until=until, progress=progress
    )


def _in_turn(
    answer: Callable[..., Why], limit: Mapping[str, Any], groups: int, said: str, behind: str
) -> Why:
    """For a group that waits for the limit of its head's type, or for its tenant's turn."""
    others = waiting(groups, "group")
    if said:
        until = seconds(limit["free"]) if "free" in limit else None
        return answer(state="delayed", reason=f"{said}; {others}", until=until)
    return answer(state="ready", reason=f"it is ready, and waits {behind}; {others}")


def _with_bounds(why: Why, facts: Mapping[str, Any], most: int) -> Why:
    """The same, with limits by hand in the reason, and how many tasks may wait."""
    by_hand, said = facts.get("by_hand"), ""
    for kind in ("tenant", "type"):
        limit = named(facts.get(kind, []))
        if "by_hand" in limit:
            until = _moment(limit["by_hand"])
            said += f"; {kind} {limit['name']}'s limits are by hand until {until}"
    if by_hand is not None:
        said += f"; its limits are by hand until {_moment(by_hand)}"
    is_full = 0 < most <= why.queued
    if is_full:
        said += (
            f"; its group is full: {why.queued} wait, and max_queued lets {most}: a further "
            "message becomes a dead letter"
        )
    return replace(
        why,
        reason=why.reason + said,
        by_hand_until=None if by_hand is None else seconds(by_hand),
        max_queued=most,
        is_full=is_full,
    )


def _moment(time: int) -> str:
    """A time (µs) that is hours or days away: the hour, and the day if it isn't today."""
    then, now = datetime.fromtimestamp(seconds(time), UTC), datetime.now(UTC)
    return then.strftime(f"{'' if then.date() == now.date() else '%Y-%m-%d '}%H:%M:%S UTC")


def _limit_reason(facts: Mapping[str, Any]) -> str:
    """Which of its limits holds a group; empty if none does."""
    if "until" not in facts or "limited_by" not in facts:
        return ""
    until = hour_of(seconds(facts["until"]))
    if facts["limited_by"] == "rate":
        return f"over its {facts['rate']} until {until}"
    if facts["limited_by"] == "batch":
        return f"waiting for more until {until}, {facts['queued']} so far: its batch isn't full"
    return f"closed until {until}, since a handler asked for that (Retry with its scope)"


def _waiting(row: Sequence[Any]) -> Waiting:
    facts = named(row, "enqueued_at")
    task_state = TaskState.of(facts["task_state"])
    return Waiting(
        id=facts["id"],
        type=facts["type"],
        tenant=facts.get("tenant"),
        enqueued_at=facts["enqueued_at"],
        **task_state.told,
        due=None if task_state.due is None else seconds(task_state.due),
        errors=[
            {name: fact for name, fact in error.items() if name != "traceback"}
            for error in task_state.errors
        ],
    )
