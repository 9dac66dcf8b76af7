"""Groups of a whole namespace: each lies in one partition; `ALL` means all partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from groupflow.operate import groups as one
from groupflow.operate import listing
from groupflow.operate.groups import ALL, Why
from groupflow.operate.listing import Lane
from groupflow.operate.whole.namespace import Namespace, missing


class AllGroups:
    """The groups of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def pause(self, group: str, by: str, for_: float | None = None) -> bool:
        """Hold a group, or everything (`ALL`): for so many seconds, or until it is resumed.

        Returns:
            Whether anything changed, in any partition.

        Raises:
            StoreUnavailable: its partition is away; for `ALL`, one is, and the rest is paused.
        """
        return await self._change(group, lambda groups: groups.pause(group, by, for_))

    async def resume(self, group: str) -> bool:
        """Let a group, or everything (`ALL`), go on.

        Returns:
            Whether it was paused, or some of it.

        Raises:
            StoreUnavailable: its partition is away; for `ALL`, one is, and the rest goes on.
        """
        return await self._change(group, lambda groups: groups.resume(group))

    async def _change(self, group: str, change: Callable[[one.Groups], Awaitable[bool]]) -> bool:
        if group != ALL:
            place = self._namespace.place_of(group)
            return await self._namespace.ask(place, lambda client: change(one.Groups(client)))
        answers = await self._namespace.ask_all(lambda client: change(one.Groups(client)))
        missing(answers.away)
        return any(answers.all)

    async def why(self, group: str, *, with_words: bool = True) -> Why:
        """The state that a group is in, and why; see `Groups.why`.

        Raises:
            StoreUnavailable: its partition is away.
        """
        return await self._namespace.ask(
            self._namespace.place_of(group),
            lambda client: one.Groups(client).why(group, with_words=with_words),
        )

    async def lane(self, group: str, *, passed: int = 0, limit: int = 50) -> Lane:
        """The tasks that wait in a group; see `listing.list_lane`.

        Raises:
            StoreUnavailable: its partition is away.
        """
        return await self._namespace.ask(
            self._namespace.place_of(group),
            lambda client: listing.list_lane(client, group, passed=passed, limit=limit),
        )
