"""The API's actions on dead letters, waiting tasks and groups; each logged with its caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus

import structlog

from groupflow.core.errors import (
    AmbiguousId,
    BodyMissing,
    GroupflowError,
    NoRoomForDelay,
    StoreFull,
    StoreUnavailable,
    Unroutable,
)
from groupflow.core.limits import HandLimit, Limited
from groupflow.operate.groups import ALL
from groupflow.operate.limits import TooManyByHand
from groupflow.operate.tasks import REASONS, Left
from groupflow.operate.whole.choosing import Choice
from groupflow.operate.whole.groups import AllGroups
from groupflow.operate.whole.letters import AllLetters
from groupflow.operate.whole.limits import LimitsByHand
from groupflow.operate.whole.schedules import AllSchedules, NoSchedule, StillOpen
from groupflow.operate.whole.tasks import AllTasks
from groupflow.ops.page.context import PageContext
from groupflow.ops.page.endpoints import Caller, Endpoint
from groupflow.ops.page.problems import Refused
from groupflow.ops.page.shapes import (
    MOST_IDS,
    Change,
    Letters,
    LimitedTarget,
    LimitOrder,
    Made,
    Result,
    ScheduleTarget,
    Target,
    Untouched,
    WaitingTask,
)

log = structlog.get_logger("groupflow.page")

_act = partial(Endpoint, "POST", right="act", reads=True)
_GONE = "It is no dead letter, or not any more."


class Acting:
    """The endpoints that change something."""

    def __init__(self, context: PageContext) -> None:
        self._is_one = len(context.namespace) == 1
        self._redrive_one = context.redrive
        self._letters = AllLetters(context.namespace)
        self._groups = AllGroups(context.namespace)
        self._limits = LimitsByHand(context.namespace)
        self._waiting = AllTasks(context.namespace)
        self._schedules = AllSchedules(context.namespace)

    @_act("/dead/redrive", "Make dead letters tasks again, each at its original place")
    async def _redrive(self, order: Letters, caller: Caller) -> Result:
        result = Result([], [])
        for id_ in dict.fromkeys(order.ids):
            try:
                lying = await self._letters.find(id_, order.choice)
                is_done = lying is not None and await self._redrive_one(lying)
            except (StoreUnavailable, AmbiguousId) as error:
                self._leave(result, order, id_, error)
                continue
            except Unroutable as error:
                result.stayed.append(Untouched(id_, f"It can't be routed: {error.reason}"))
                continue
            except (BodyMissing, NoRoomForDelay, StoreFull) as error:
                result.stayed.append(Untouched(id_, str(error)))
                continue
            _note(result, id_, is_done=is_done)
        _log_tasks("redriven", order, caller, result)
        return result

    @_act("/dead/drop", "Remove dead letters for good")
    async def _drop(self, order: Letters, caller: Caller) -> Result:
        result = Result([], [])
        for id_ in dict.fromkeys(order.ids):
            try:
                lying = await self._letters.find(id_, order.choice)
                is_done = lying is not None and await self._letters.drop(lying)
            except (StoreUnavailable, AmbiguousId) as error:
                self._leave(result, order, id_, error)
            else:
                _note(result, id_, is_done=is_done)
        _log_tasks("dropped", order, caller, result)
        return result

    @_act("/task/drop", "Remove waiting or delayed tasks for good")
    async def _drop_waiting(self, order: WaitingTask, caller: Caller) -> Result:
        result = await self._to_waiting(order, self._waiting.drop)
        _log_tasks("dropped_waiting", order, caller, result)
        return result

    @_act("/task/run-now", "Make delayed tasks due")
    async def _run_now(self, order: WaitingTask, caller: Caller) -> Result:
        result = await self._to_waiting(order, self._waiting.run_now)
        _log_tasks("ran_now", order, caller, result)
        return result

    async def _to_waiting(
        self, order: WaitingTask, act: Callable[[str, Choice], Awaitable[Left | None]]
    ) -> Result:
        """Act on each named task, or on up to `MOST_IDS` of a group's delayed ones."""
        if bool(order.ids) == (order.delayed is not None):
            raise Refused(
                HTTPStatus.BAD_REQUEST, "Name ids, or a group as delayed: one of the two."
            )
        ids, choice = order.ids, order.choice
        if order.delayed is not None:
            choice = self._waiting.choice_of(order.delayed)
            ids = (await self._waiting.delayed_of(order.delayed))[:MOST_IDS]
        result = Result([], [])
        for id_ in dict.fromkeys(ids):
            try:
                left = await act(id_, choice)
            except (StoreUnavailable, AmbiguousId) as error:
                self._leave(result, order, id_, error)
                continue
            if left is None:
                result.done.append(id_)
            else:
                result.stayed.append(Untouched(id_, REASONS[left]))
        return result

    def _leave(
        self, result: Result, order: Letters | WaitingTask, id_: str, error: GroupflowError
    ) -> None:
        """Note a task that stays, its partition being away or its id ambiguous; the others go on.

        Raises:
            AmbiguousId: it is the only named id.
            StoreUnavailable: there is only one partition.
        """
        is_only = self._is_one if isinstance(error, StoreUnavailable) else len({*order.ids}) == 1
        if is_only:
            raise error
        result.stayed.append(Untouched(id_, str(error)))

    @_act("/pause", "Hold a group or everything")
    async def _pause(self, order: Target, caller: Caller) -> Change:
        target = _target(order)
        changed = await self._groups.pause(target, order.by or f"somebody at {caller.peer}")
        _log("paused", order.by, caller, group=target or "everything", changed=changed)
        return Change(changed)

    @_act("/resume", "Let a group or everything go on")
    async def _resume(self, order: Target, caller: Caller) -> Change:
        target = _target(order)
        changed = await self._groups.resume(target)
        _log("resumed", order.by, caller, group=target or "everything", changed=changed)
        return Change(changed)

    @_act("/limit", "Give a group or a tenant other limits, for a while")
    async def _limit(self, order: LimitOrder, caller: Caller) -> Change:
        kind, name = _limited(order)
        limit = HandLimit(kind, name, order.concurrency, order.rate)
        try:
            await self._limits.begin(limit, order.by or f"somebody at {caller.peer}", order.seconds)
        except (ValueError, TooManyByHand) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        facts = {kind: name, "limits": limit.words, "seconds": order.seconds}
        _log("limited", order.by, caller, **facts)
        return Change(changed=True)

    @_act("/limit/end", "Let a group or a tenant go on as configured")
    async def _end_limit(self, order: LimitedTarget, caller: Caller) -> Change:
        kind, name = _limited(order)
        by = order.by or f"somebody at {caller.peer}"
        changed = await self._limits.end(kind, name, by)
        _log("unlimited", order.by, caller, **{kind: name}, changed=changed)
        return Change(changed)

    @_act("/schedules/run", "Make a tick of a schedule now")
    async def _run_schedule(self, order: ScheduleTarget, caller: Caller) -> Made | None:
        try:
            task = await self._schedules.run(order.name)
        except NoSchedule:
            return None
        except StillOpen as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{error}.") from None
        _log("ran_schedule", order.by, caller, schedule=order.name, task=task)
        return Made(task)

    @_act("/schedules/pause", "Let a schedule's ticks pass by")
    async def _pause_schedule(self, order: ScheduleTarget, caller: Caller) -> Change | None:
        by = order.by or f"somebody at {caller.peer}"
        try:
            changed = await self._schedules.pause(order.name, by)
        except NoSchedule:
            return None
        _log("paused_schedule", order.by, caller, schedule=order.name, changed=changed)
        return Change(changed)

    @_act("/schedules/resume", "Let a paused schedule go on")
    async def _resume_schedule(self, order: ScheduleTarget, caller: Caller) -> Change | None:
        try:
            changed = await self._schedules.resume(order.name)
        except NoSchedule:
            return None
        _log("resumed_schedule", order.by, caller, schedule=order.name, changed=changed)
        return Change(changed)


def _target(order: Target) -> str:
    if order.everything == (order.group is not None):
        raise Refused(HTTPStatus.BAD_REQUEST, "Name one group, or set everything to true.")
    return order.group or ALL


def _limited(order: LimitedTarget) -> tuple[Limited, str]:
    if order.group is not None and order.tenant is None:
        return "group", order.group
    if order.tenant is not None and order.group is None:
        return "tenant", order.tenant
    raise Refused(HTTPStatus.BAD_REQUEST, "Name one group or one tenant.")


def _note(result: Result, id_: str, *, is_done: bool) -> None:
    if is_done:
        result.done.append(id_)
    else:
        result.stayed.append(Untouched(id_, _GONE))


def _log_tasks(what: str, order: Letters | WaitingTask, caller: Caller, result: Result) -> None:
    chosen = {"tenant": order.tenant, "partition": order.partition}
    which = {name: value for name, value in chosen.items() if value is not None}
    _log(what, order.by, caller, tasks=result.done, **which)


def _log(what: str, by: str, caller: Caller, **facts: object) -> None:
    log.warning(
        f"operator.{what}",
        by=by or None,
        token=caller.holder and caller.holder.name,
        peer=caller.peer,
        **facts,
    )
