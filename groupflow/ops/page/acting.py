"""What the API does: to dead letters, to tasks that wait, to groups; logged with who and what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import structlog

from groupflow.core.errors import BodyMissing, NoRoomForDelay, StoreFull, Unroutable
from groupflow.operate.groups import ALL, Groups
from groupflow.operate.waiting import REASONS, Left, WaitingTasks
from groupflow.ops.page.context import PageContext
from groupflow.ops.page.endpoints import Caller, Endpoint, Handle
from groupflow.ops.page.problems import Refused
from groupflow.ops.page.shapes import (
    MOST_IDS,
    Acted,
    Held,
    Letters,
    Stayed,
    Target,
    WaitingTask,
)
from groupflow.store.dead import DeadLetter, DeadLetters

log = structlog.get_logger("groupflow.page")

_GONE = "It is no dead letter, or not any more."


class Acting:
    """The endpoints that change something."""

    def __init__(self, context: PageContext) -> None:
        self._redrive_one = context.redrive
        self._letters = DeadLetters(context.client)
        self._groups = Groups(context.client)
        self._waiting = WaitingTasks(context.client)

    def endpoints(self) -> list[Endpoint]:
        verbs: list[tuple[str, str, Handle]] = [
            (
                "/dead/redrive",
                "Make dead letters tasks again, each at its original place",
                self._redrive,
            ),
            ("/dead/drop", "Remove dead letters for good", self._drop),
            ("/task/drop", "Remove waiting or delayed tasks for good", self._drop_waiting),
            ("/task/run-now", "Make delayed tasks due", self._run_now),
            ("/pause", "Hold a group or everything", self._pause),
            ("/resume", "Let a group or everything go on", self._resume),
        ]
        return [Endpoint("POST", *verb, acts=True) for verb in verbs]

    async def _redrive(self, asked: Letters, caller: Caller) -> Acted:
        acted = Acted([], [])
        for id_ in dict.fromkeys(asked.ids):
            letter = await self._letters.get(id_)
            try:
                is_done = letter is not None and await self._redrive_one(letter)
            except Unroutable as error:
                acted.stayed.append(Stayed(id_, f"It can't be routed: {error.reason}"))
                continue
            except KeyError:  # somebody else took it a moment ago
                is_done = False
            except (BodyMissing, NoRoomForDelay, StoreFull) as error:
                acted.stayed.append(Stayed(id_, str(error)))
                continue
            _note(acted, id_, is_done=is_done)
        _log("redriven", asked.by, caller, tasks=acted.done)
        return acted

    async def _drop(self, asked: Letters, caller: Caller) -> Acted:
        acted = Acted([], [])
        for id_ in dict.fromkeys(asked.ids):
            letter: DeadLetter | None = await self._letters.get(id_)
            _note(acted, id_, is_done=letter is not None and await self._letters.drop(letter))
        _log("dropped", asked.by, caller, tasks=acted.done)
        return acted

    async def _drop_waiting(self, asked: WaitingTask, caller: Caller) -> Acted:
        acted = await self._to_waiting(asked, self._waiting.drop)
        _log("dropped_waiting", asked.by, caller, tasks=acted.done)
        return acted

    async def _run_now(self, asked: WaitingTask, caller: Caller) -> Acted:
        acted = await self._to_waiting(asked, self._waiting.run_now)
        _log("ran_now", asked.by, caller, tasks=acted.done)
        return acted

    async def _to_waiting(
        self, asked: WaitingTask, act: Callable[[str], Awaitable[Left | None]]
    ) -> Acted:
        """Act on each that is named, `MOST_IDS` of a group's delayed ones at most."""
        if bool(asked.ids) == (asked.delayed is not None):
            raise Refused(
                HTTPStatus.BAD_REQUEST, "Name ids, or a group as delayed: one of the two."
            )
        ids = asked.ids
        if asked.delayed is not None:
            ids = (await self._waiting.delayed_of(asked.delayed))[:MOST_IDS]
        acted = Acted([], [])
        for id_ in dict.fromkeys(ids):
            left = await act(id_)
            if left is None:
                acted.done.append(id_)
            else:
                acted.stayed.append(Stayed(id_, REASONS[left]))
        return acted

    async def _pause(self, asked: Target, caller: Caller) -> Held:
        target = _target(asked)
        changed = await self._groups.pause(target, asked.by or f"somebody at {caller.peer}")
        _log("paused", asked.by, caller, group=target or "everything", changed=changed)
        return Held(changed)

    async def _resume(self, asked: Target, caller: Caller) -> Held:
        target = _target(asked)
        changed = await self._groups.resume(target)
        _log("resumed", asked.by, caller, group=target or "everything", changed=changed)
        return Held(changed)


def _target(asked: Target) -> str:
    if asked.everything == (asked.group is not None):
        raise Refused(HTTPStatus.BAD_REQUEST, "Name one group, or set everything to true.")
    return asked.group or ALL


def _note(acted: Acted, id_: str, *, is_done: bool) -> None:
    if is_done:
        acted.done.append(id_)
    else:
        acted.stayed.append(Stayed(id_, _GONE))


def _log(what: str, by: str, caller: Caller, **facts: object) -> None:
    log.warning(f"operator.{what}", by=by or None, peer=caller.peer, **facts)
