"""Tasks of a whole namespace. An id doesn't say where it lies, so it is looked for everywhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import get_args

from groupflow.operate import tasks as one
from groupflow.operate.tasks import Found, Left, TaskState, WaitingTasks
from groupflow.operate.whole.namespace import Namespace
from groupflow.store.envelope import Envelope

_LIVELIEST: tuple[TaskState, ...] = get_args(TaskState)  # in that order


class AllTasks:
    """The tasks of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def find(self, id_: str) -> Found | None:
        """Find a task by its id, or ``None``: it never was, or its history has rolled away.

        Raises:
            StoreUnavailable: it is nowhere where somebody answers.
        """
        found = await self._find(id_)
        return None if found is None else found[1]

    async def envelope(self, id_: str) -> Envelope | None:
        """The headers and the body of a task that waits or runs, or ``None``: it is over.

        Raises:
            StoreUnavailable: it is nowhere where somebody answers, and some partition is away.
        """
        found = await self._namespace.seek(lambda client: one.read_envelope(client, id_))
        return next(iter(found.values()), None)

    async def _find(self, id_: str) -> tuple[int, Found] | None:
        """The same, behind its partition; what is over somewhere may live on elsewhere."""
        found = await self._namespace.seek(lambda client: one.find_task(client, id_))
        return min(found.items(), key=lambda each: _LIVELIEST.index(each[1].state), default=None)

    async def drop(self, id_: str) -> Left | None:
        """Remove a task that waits, or is delayed, for good; see `WaitingTasks.drop`."""
        return await self._act(id_, lambda tasks: tasks.drop(id_))

    async def run_now(self, id_: str) -> Left | None:
        """Make a delayed task due; see `WaitingTasks.run_now`."""
        return await self._act(id_, lambda tasks: tasks.run_now(id_))

    async def _act(
        self, id_: str, act: Callable[[WaitingTasks], Awaitable[Left | None]]
    ) -> Left | None:
        place = 0
        if len(self._namespace) > 1:
            found = await self._find(id_)
            if found is None:
                return "unknown"
            place = found[0]
        return await self._namespace.ask(place, lambda client: act(WaitingTasks(client)))

    async def delayed_of(self, group: str) -> list[str]:
        """The delayed tasks of a group; see `WaitingTasks.delayed_of`.

        Raises:
            StoreUnavailable: its partition is away.
        """
        place = self._namespace.place_of(group)
        return await self._namespace.ask(
            place, lambda client: WaitingTasks(client).delayed_of(group)
        )
