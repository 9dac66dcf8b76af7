"""Schedules of a whole namespace: each lies in one partition, that of its ticks' group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from groupflow.core.errors import GroupflowError
from groupflow.operate import schedules as one
from groupflow.operate.schedules import OneStoresSchedules, Schedule
from groupflow.operate.whole.namespace import Namespace
from groupflow.store.client import StoreClient

_Answer = TypeVar("_Answer")


class NoSchedule(GroupflowError):
    """There is no schedule of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no schedule has the name {name!r}: a daemon has to run with it in its configuration"
        )


class StillOpen(GroupflowError):
    """A schedule whose ticks mustn't overlap has one that isn't over."""

    def __init__(self, name: str, task: str) -> None:
        super().__init__(
            f'{name} has overlap = "skip", and its last task {task} isn\'t over yet: wait for '
            "its end, or drop it"
        )


async def read_schedules(namespace: Namespace) -> list[Schedule]:
    """All schedules, by name.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(one.read_schedules)
    return sorted((each for part in answers.all for each in part), key=lambda each: each.name)


class AllSchedules:
    """What operators do to the schedules of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def run(self, name: str) -> str:
        """Make a tick now, due or not; returns the id of its task.

        Raises:
            NoSchedule: nothing is known of it.
            StillOpen: its ticks mustn't overlap, and the last one isn't over.
            StoreUnavailable: no answer; it may have been made.
        """
        is_made, task = await self._act(name, lambda client: OneStoresSchedules(client).run(name))
        if not is_made:
            raise StillOpen(name, task)
        return task

    async def pause(self, name: str, by: str) -> bool:
        """Make no ticks of it; returns whether it wasn't paused already. Errors as of `run`."""
        return await self._act(name, lambda client: OneStoresSchedules(client).pause(name, by))

    async def resume(self, name: str) -> bool:
        """Let it go on; returns whether it was paused. Errors as of `run`."""
        return await self._act(name, lambda client: OneStoresSchedules(client).resume(name))

    async def drop(self, name: str) -> None:
        """Forget it, until a daemon has it. Errors as of `run`."""
        await self._act(name, lambda client: OneStoresSchedules(client).drop(name))

    async def _act(
        self, name: str, act: Callable[[StoreClient], Awaitable[_Answer | None]]
    ) -> _Answer:
        found = await self._namespace.seek(act)
        if not found:
            raise NoSchedule(name)
        return next(iter(found.values()))
