"""Tasks of a whole namespace. An id doesn't tell its partition, so all are searched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from groupflow.operate import tasks as one
from groupflow.operate.tasks import Found, Left, WaitingTasks
from groupflow.operate.whole.choosing import ANY, Choice, choose
from groupflow.operate.whole.namespace import Namespace
from groupflow.store.envelope import Envelope


class AllTasks:
    """The tasks of a namespace; a `Choice` says which one, if several have one id."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def find(self, id_: str, choice: Choice = ANY) -> Found | None:
        """Find a task by its id, or ``None``: it never was, or isn't in the history any more.

        Raises:
            AmbiguousId: several tasks have it.
            StoreUnavailable: no partition that answers has it, and some partition is away.
        """
        found = await choose(self._namespace, id_, choice)
        return None if found is None else found[1]

    async def envelope(self, id_: str, choice: Choice = ANY) -> Envelope | None:
        """The headers and the body of a task that waits or runs, or ``None``: it is over.

        Raises:
            AmbiguousId: several tasks have the id.
            StoreUnavailable: no partition that answers has it, and some partition is away.
        """
        found = await choose(self._namespace, id_, choice)
        if found is None:
            return None
        return await self._namespace.ask(found[0], lambda client: one.read_envelope(client, id_))

    async def drop(self, id_: str, choice: Choice = ANY) -> Left | None:
        """Remove a task that waits, or is delayed, for good; see `WaitingTasks.drop`."""
        return await self._act(id_, choice, lambda tasks: tasks.drop(id_))

    async def run_now(self, id_: str, choice: Choice = ANY) -> Left | None:
        """Make a delayed task due; see `WaitingTasks.run_now`."""
        return await self._act(id_, choice, lambda tasks: tasks.run_now(id_))

    async def _act(
        self, id_: str, choice: Choice, act: Callable[[WaitingTasks], Awaitable[Left | None]]
    ) -> Left | None:
        """Act on one task.

        Raises:
            AmbiguousId: several tasks have the id.
        """
        place = 0
        if len(self._namespace) > 1 or choice != ANY:
            found = await choose(self._namespace, id_, choice)
            if found is None:
                return "unknown"
            place = found[0]
        return await self._namespace.ask(place, lambda client: act(WaitingTasks(client)))

    def choice_of(self, group: str) -> Choice:
        """Chooses the task in the partition of a group."""
        return Choice(partition=self._namespace.place_of(group))

    async def delayed_of(self, group: str) -> list[str]:
        """The delayed tasks of a group; see `WaitingTasks.delayed_of`.

        Raises:
            StoreUnavailable: its partition is away.
        """
        place = self._namespace.place_of(group)
        return await self._namespace.ask(
            place, lambda client: WaitingTasks(client).delayed_of(group)
        )
