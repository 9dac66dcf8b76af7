"""Limits by hand of a whole namespace: a group's in its partition, a tenant's in all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from groupflow.core.limits import HandLimit, Limited, SetByHand
from groupflow.operate import limits as one
from groupflow.operate.away import Away
from groupflow.operate.limits import ByHand
from groupflow.operate.whole.namespace import Namespace, missing
from groupflow.store.client import StoreClient

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class AllByHand(ByHand):
    """The limits by hand of all partitions."""

    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


class LimitsByHand:
    """The limits by hand of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def begin(self, limit: HandLimit, by: str, for_: float) -> None:
        """Let a limit hold for so many seconds; see `limits.begin`.

        Raises:
            ValueError: it can't hold; the text says why.
            TooManyByHand: as many limits hold as may.
            StoreUnavailable: a partition that has to know is away; others know already.
        """
        limit.check(for_)
        await self._tell(limit.kind, limit.name, lambda client: one.begin(client, limit, by, for_))

    async def end(self, kind: Limited, name: str, by: str) -> bool:
        """End the limits by hand of a group or a tenant.

        Returns:
            Whether there were any.

        Raises:
            StoreUnavailable: a partition that has to know is away; others know already.
        """
        return any(await self._tell(kind, name, lambda client: one.end(client, kind, name, by)))

    async def every(self) -> AllByHand:
        """The limits by hand that hold, the first to end first.

        Raises:
            StoreUnavailable: no partition answers.
        """
        answers = await self._namespace.ask_all(one.read_by_hand)
        limits = together(each.limits for each in answers.all)
        return AllByHand(len(limits), limits, answers.away)

    async def _tell(
        self, kind: Limited, name: str, tell: Callable[[StoreClient], Awaitable[_Answer]]
    ) -> list[_Answer]:
        if kind == "group":
            return [await self._namespace.ask(self._namespace.place_of(name), tell)]
        answers = await self._namespace.ask_all(tell)
        missing(answers.away)
        return answers.all


def together(parts: Iterable[Iterable[SetByHand]]) -> list[SetByHand]:
    """Each limit once, with its latest end, the first to end first."""
    found: dict[tuple[str, str], SetByHand] = {}
    for each in (limit for part in parts for limit in part):
        known = found.get((each.kind, each.name))
        if known is None or each.until > known.until:
            found[each.kind, each.name] = each
    return sorted(found.values(), key=lambda each: each.until)
