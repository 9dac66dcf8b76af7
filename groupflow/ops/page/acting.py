"""The API's actions on dead letters, waiting tasks and groups; each logged with its caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import structlog

from groupflow.core.errors import GroupflowError, Unroutable
from groupflow.core.limits import HandLimit, Limited
from groupflow.operate import bulk
from groupflow.operate.actions import note
from groupflow.operate.cancelling import Several, cancel_step, count_step
from groupflow.operate.dead import DeadLetter, DeadLetters
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.known import doubt
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.redrive import NewBody, Redriver
from groupflow.operate.scans import Scans
from groupflow.operate.schedules import Schedules
from groupflow.operate.tasks import REASONS, Choice, Left, Tasks
from groupflow.ops.page import shapes
from groupflow.ops.page.endpoints import Caller, Endpoint
from groupflow.ops.page.facts import PageContext
from groupflow.ops.page.problems import InputRefused, known_only

_Meant = TypeVar("_Meant", str, str | DeadLetter)

log = structlog.get_logger("groupflow.page")

_act = partial(Endpoint, "POST", right="act", reads=True)
_act_by_name = partial(_act, may_miss=True)
_GONE = "It is no dead letter, or not any more."


@dataclass(frozen=True, slots=True)
class Doubted(shapes.Change):
    """The same of what nothing is known of, as `doubt` says."""

    doubt: str


class Acting:
    """The endpoints that change something."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._letters = DeadLetters(context.namespace)
        self._groups = Groups(context.namespace)
        self._limits = LimitsByHand(context.namespace)
        self._waiting = Tasks(context.namespace)
        self._scans = Scans(context.namespace)
        self._schedules = Schedules(context.namespace)

    @_act("/dead/redrive", "Make dead letters tasks again, each at its original place")
    async def _redrive(self, order: shapes.Redrive, caller: Caller) -> shapes.Result:
        redriver = Redriver(self._context.facts.settings, self._context.namespace)
        new = None
        if order.body is not None:
            if len(order.ids) != 1:
                raise InputRefused("A body corrects one dead letter: name its id alone.")
            new = NewBody(order.body.encode(), _who(order, caller))
        redrive = partial(redriver.redrive, new=new)
        return await self._to_letters("redriven", order, caller, redrive)

    @_act("/dead/drop", "Remove dead letters for good")
    async def _drop(self, order: shapes.Letters, caller: Caller) -> shapes.Result:
        return await self._to_letters("dropped", order, caller, self._letters.drop)

    @_act("/task/cancel", "Cancel tasks: one that waits ends, one that runs is asked to stop")
    async def _cancel(self, order: shapes.Cancel, caller: Caller) -> shapes.Cancelled:
        if bool(order.ids) + (order.group is not None) + (order.type is not None) != 1:
            raise InputRefused("Name ids, or a group, or a type: one of the three.")
        if order.ids:
            return await self._cancel_named(order, caller)
        if (order.tenant, order.partition) != (None, None):
            raise InputRefused("A tenant or partition chooses among tasks of an id: name ids.")
        namespace, meant = self._context.namespace, Several(order.group, order.type or "")
        if order.dry_run:
            step = await count_step(namespace, meant, order.cursor)
        else:
            who = _who(order, caller), order.reason
            step = await cancel_step(namespace, meant, *who, order.cursor)
            which = order.model_dump(include={"group", "type"}, exclude_none=True)
            which["reason"], running = order.reason or None, step.running[: shapes.MOST_IDS]
            await self._note("cancelled", order, caller, tasks=running, ended=step.waiting, **which)
        return shapes.Cancelled(
            waiting=step.waiting, running=step.running, next=step.next, away=step.away
        )

    async def _cancel_named(self, order: shapes.Cancel, caller: Caller) -> shapes.Cancelled:
        if order.dry_run:
            raise InputRefused("A dry run counts tasks of a group or a type: name no ids.")
        found, who, done = shapes.Cancelled(), _who(order, caller), list[str]()

        async def cancel(id_: str) -> None:
            verdict = await self._waiting.cancel(id_, who, order.reason, order.choice)
            found.tasks.append(shapes.Judged(id_, verdict))
            if verdict in {"cancelled", "requested"}:
                done.append(id_)

        each_kept = self._context.namespace.act_on_each(order.ids, cancel, fails_alone=True)
        async with self._noting("cancelled", order, caller, done, reason=order.reason or None):
            async for id_, kept in each_kept:
                if kept is not None:
                    found.stayed.append(shapes.Untouched(id_, str(kept)))
        return found

    @_act("/task/drop", "Remove waiting or delayed tasks for good")
    async def _drop_waiting(self, order: shapes.WaitingTask, caller: Caller) -> shapes.Result:
        return await self._to_waiting("dropped_waiting", order, caller, self._waiting.drop)

    @_act("/task/run-now", "Make delayed tasks due")
    async def _run_now(self, order: shapes.WaitingTask, caller: Caller) -> shapes.Result:
        return await self._to_waiting("ran_now", order, caller, self._waiting.run_now)

    async def _to_letters(
        self,
        what: str,
        order: shapes.Letters,
        caller: Caller,
        act: Callable[[DeadLetter], Awaitable[bool]],
    ) -> shapes.Result:
        """Act on named letters, or on up to `MOST_IDS` that match a filter, by a bounded look."""

        async def act_on(meant: str | DeadLetter) -> str | None:
            return None if await self._letters.act_on(meant, order.choice, act) else _GONE

        tenant = None if order.ids else order.tenant  # with ids it says whose letter is meant
        wanted = order.filter(tenant, sees_contents=caller.sees_contents)
        if order.ids:
            if order.everything or order.dry_run or wanted.is_set:
                raise InputRefused("Name ids, or a filter, everything or dry_run: not both.")
            return await self._to_each(what, order, caller, order.ids, act_on)
        if not order.everything and not wanted.is_set:
            raise InputRefused(
                "Name ids, a filter (reason, cause, type, group, tenant, since), or set everything."
            )
        namespace = self._context.namespace
        found = await bulk.step(namespace, wanted, order.cursor, shapes.MOST_IDS)
        result = shapes.Result([], [])
        if not order.dry_run:
            # The oldest first: where a group has room for some, those that came first get it.
            letters = reversed(found.letters)
            result = await self._to_each(what, order, caller, letters, act_on, **wanted.facts)
        return replace(result, matching=len(found.letters), next=found.next, away=found.away)

    async def _to_waiting(
        self,
        what: str,
        order: shapes.WaitingTask,
        caller: Caller,
        act: Callable[[str, Choice], Awaitable[Left | None]],
    ) -> shapes.Result:
        """Act on each named task, or on up to `MOST_IDS` of a group's delayed ones."""
        if bool(order.ids) == (order.delayed is not None):
            raise InputRefused("Name ids, or a group as delayed: one of the two.")
        ids, choice = order.ids, order.choice
        if order.delayed is not None:
            ids, choice = await self._waiting.delayed_of(order.delayed)
            ids = ids[: shapes.MOST_IDS]

        async def act_on(id_: str) -> str | None:
            left = await act(id_, choice)
            return None if left is None else REASONS[left]

        return await self._to_each(what, order, caller, ids, act_on, group=order.delayed)

    async def _to_each(
        self,
        what: str,
        order: shapes.Letters | shapes.WaitingTask,
        caller: Caller,
        meant: Iterable[_Meant],
        act: Callable[[_Meant], Awaitable[str | None]],
        **which: Any,
    ) -> shapes.Result:
        """Act on each task, by its id or its letter, and log which it was done to.

        Raises:
            AmbiguousId, StoreUnavailable: as of `act_on_each`.
        """
        result = shapes.Result([], [])
        which |= order.model_dump(include={"tenant", "partition"}, exclude_none=True)
        if isinstance(order, shapes.Redrive) and order.body is not None:
            which["corrected"] = True
        each_kept = self._context.namespace.act_on_each(meant, act, fails_alone=True)
        async with self._noting(what, order, caller, result.done, **which):
            async for each, kept in each_kept:
                id_ = each.id if isinstance(each, DeadLetter) else each
                if kept is None:
                    result.done.append(id_)
                else:
                    words = "It can't be routed: " if isinstance(kept, Unroutable) else ""
                    result.stayed.append(shapes.Untouched(id_, f"{words}{kept}"))
        return result

    @_act("/pause", "Hold a group or everything")
    async def _pause(self, order: shapes.Target, caller: Caller) -> shapes.Change | Doubted:
        target = _target(order)
        changed = await self._groups.pause(target, _who(order, caller))
        told = await self._told("paused", order, caller, changed, group=target or "everything")
        return await self._doubted(told, "group", target) if target else told

    @_act("/resume", "Let a group or everything go on")
    async def _resume(self, order: shapes.Target, caller: Caller) -> shapes.Change:
        target = _target(order)
        changed = await self._groups.resume(target)
        return await self._told("resumed", order, caller, changed, group=target or "everything")

    @_act("/limit", "Give a group, a tenant or a type other limits, for a while")
    async def _limit(self, order: shapes.LimitOrder, caller: Caller) -> shapes.Change | Doubted:
        kind, name = _limited(order)
        limit = HandLimit(kind, name, order.concurrency, order.rate)
        try:
            await self._limits.begin(limit, _who(order, caller), order.seconds)
        except ValueError as error:
            raise InputRefused(str(error)) from None
        facts: dict[str, Any] = {kind: name, "limits": limit.words, "seconds": order.seconds}
        await self._note("limited", order, caller, **facts)
        return await self._doubted(shapes.Change(changed=True), kind, name)

    @_act("/limit/end", "Let a group, a tenant or a type go on as configured")
    async def _end_limit(self, order: shapes.LimitedTarget, caller: Caller) -> shapes.Change:
        kind, name = _limited(order)
        changed = await self._limits.end(kind, name, _who(order, caller))
        return await self._told("unlimited", order, caller, changed, **{kind: name})

    @_act_by_name("/schedules/run", "Make a tick of a schedule now")
    async def _run_schedule(self, order: shapes.NamedTarget, caller: Caller) -> shapes.Made:
        task = await self._schedules.run(order.name)
        await self._note("ran_schedule", order, caller, schedule=order.name, task=task)
        return shapes.Made(task)

    @_act_by_name("/schedules/pause", "Let a schedule's ticks pass by")
    async def _pause_schedule(self, order: shapes.NamedTarget, caller: Caller) -> shapes.Change:
        changed = await self._schedules.pause(order.name, _who(order, caller))
        return await self._told("paused_schedule", order, caller, changed, schedule=order.name)

    @_act_by_name("/schedules/resume", "Let a paused schedule go on")
    async def _resume_schedule(self, order: shapes.NamedTarget, caller: Caller) -> shapes.Change:
        changed = await self._schedules.resume(order.name)
        return await self._told("resumed_schedule", order, caller, changed, schedule=order.name)

    async def _doubted(
        self, told: shapes.Change, kind: Limited, name: str
    ) -> shapes.Change | Doubted:
        settings = self._context.facts.settings
        words = await doubt(self._context.namespace, settings, kind, name)
        return Doubted(told.changed, words) if words else told

    async def _told(
        self, what: str, order: shapes.Order, caller: Caller, changed: bool, **facts: Any
    ) -> shapes.Change:
        await self._note(what, order, caller, **facts, changed=changed)
        return shapes.Change(changed)

    @asynccontextmanager
    async def _noting(
        self, what: str, order: shapes.Order, caller: Caller, tasks: list[str], **facts: Any
    ) -> AsyncIterator[None]:
        """Note to which tasks an action was done, also where it fails half-way."""
        try:
            yield
        except BaseException:
            if tasks:
                await self._note(what, order, caller, tasks=tasks, **facts)
            raise
        await self._note(what, order, caller, tasks=tasks, **facts)

    async def _note(
        self,
        what: str,
        order: shapes.Order,
        caller: Caller,
        *,
        tasks: list[str] | None = None,
        ended: int = 0,
        **facts: Any,
    ) -> None:
        """Log an action; where it changed anything, note it among the actions too.

        It was done to `tasks`, and to more that `ended`.
        """
        token = caller.holder.name if caller.holder else None
        who = {"by": order.by or None, "token": token, "peer": caller.peer}
        done = {} if tasks is None else {"tasks": tasks, **({"ended": ended} if ended else {})}
        log.warning(f"operator.{what}", **who, **done, **facts)
        count = ended + len(tasks or ())
        if not facts.pop("changed", tasks is None or count):
            return
        by, some = _who(order, caller), tasks or ()
        try:
            await note(
                self._context.namespace, what, by, token=token, tasks=some, count=count, **facts
            )
        except GroupflowError as error:
            log.warning("operator.not_noted", what=what, error=str(error))

    @_act_by_name("/scans/wake", "End the sleep of a scan's shards")
    async def _wake_scan(self, order: shapes.NamedTarget, caller: Caller) -> shapes.Change:
        with known_only():
            await self._scans.wake(order.name)
        return await self._told("woke_scan", order, caller, changed=True, scan=order.name)

    @_act_by_name("/scans/pause", "Hold all shards of a scan")
    async def _pause_scan(self, order: shapes.NamedTarget, caller: Caller) -> shapes.Change:
        with known_only():
            changed = await self._scans.pause(order.name, _who(order, caller))
        return await self._told("paused_scan", order, caller, changed, scan=order.name)

    @_act_by_name("/scans/resume", "Let all shards of a scan go on")
    async def _resume_scan(self, order: shapes.NamedTarget, caller: Caller) -> shapes.Change:
        with known_only():
            changed = await self._scans.resume(order.name)
        return await self._told("resumed_scan", order, caller, changed, scan=order.name)


def _target(order: shapes.Target) -> str:
    if order.everything == (order.group is not None):
        raise InputRefused("Name one group, or set everything to true.")
    return order.group or ALL


def _limited(order: shapes.LimitedTarget) -> tuple[Limited, str]:
    kinds: tuple[Limited, ...] = ("group", "tenant", "type")
    named = [(kind, name) for kind in kinds if (name := getattr(order, kind)) is not None]
    if len(named) != 1:
        raise InputRefused("Name one group, one tenant or one type.")
    return named[0]


def _who(order: shapes.Order, caller: Caller) -> str:
    return order.by or (caller.holder and caller.holder.name) or f"somebody at {caller.peer}"
