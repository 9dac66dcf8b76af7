"""Limits by hand: begin, end, list. A group's lie in its partition, others in all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

from groupflow.core.errors import GroupflowError
from groupflow.core.limits import HandLimit, Limited, Rate, SetByHand
from groupflow.operate.namespace import Away, Namespace
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import Argument
from groupflow.store.clock import microseconds, seconds

MOST = 1000
"""How many groups, tenants and types may be limited by hand at once, in a partition."""
_LETTERS: dict[Limited, str] = {"group": "g", "tenant": "t", "type": "y"}
_KINDS: dict[str, Limited] = {letter: kind for kind, letter in _LETTERS.items()}
_AS_CONFIGURED = "-"


class TooManyByHand(GroupflowError):
    """As many groups, tenants and types are limited by hand as may be."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """Limits by hand."""

    limits: list[SetByHand]  # the first to end first
    away: list[Away]  # partitions that are missing from all of this


class LimitsByHand:
    """The limits by hand of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def begin(self, limit: HandLimit, by: str, for_: float) -> None:
        """Let a limit hold for so many seconds; it replaces an earlier one by hand.

        Raises:
            ValueError: it can't hold; see `HandLimit.check`.
            TooManyByHand: as many limits hold as may.
            StoreUnavailable: a partition that has to know is away; others know already.
        """
        limit.check(for_)
        most = _AS_CONFIGURED if limit.concurrency is None else limit.concurrency
        facts = (microseconds(for_), by, most, *_packed(limit.rate))
        if any(answer < 0 for answer in await self._tell(limit.kind, limit.name, *facts)):
            raise TooManyByHand(
                f"{MOST} groups, tenants and types are limited by hand already: end some "
                "(`groupflow limit` lists them), or write what is to last into the configuration."
            )

    async def end(self, kind: Limited, name: str, by: str) -> bool:
        """End the limits by hand of a group, a tenant or a type.

        Returns:
            Whether there were any.

        Raises:
            StoreUnavailable: a partition that has to know is away; others know already.
        """
        return any(await self._tell(kind, name, "", by, *(_AS_CONFIGURED,) * 3, ""))

    async def every(self) -> ByHand:
        """The limits by hand that hold, the first to end first.

        Raises:
            StoreUnavailable: no partition answers.
        """
        verb = OperatorVerb.LIMITS_BY_HAND
        answers = await self._namespace.ask_all(lambda client: client.run(verb, MOST))
        return ByHand(
            together((set_by_hand(*row) for row in rows) for rows in answers.all), answers.away
        )

    async def _tell(self, kind: Limited, name: str, *facts: Argument) -> list[Any]:
        arguments = (_LETTERS[kind] + name, *facts, MOST)
        if kind == "group":
            return [await self._namespace.run_at(name, OperatorVerb.LIMIT, *arguments)]
        return await self._namespace.run_everywhere(OperatorVerb.LIMIT, *arguments)


def together(parts: Iterable[Iterable[SetByHand]]) -> list[SetByHand]:
    """Each limit once, with its latest end, the first to end first."""
    every = sorted(chain.from_iterable(parts), key=attrgetter("until"))
    latest = {(each.kind, each.name): each for each in every}
    return sorted(latest.values(), key=attrgetter("until"))


def set_by_hand(*row: bytes) -> SetByHand:
    """A limit as a script answers it; see `by_hand.lua`."""
    whose, text = map(bytes.decode, row)
    said, _, by = text.partition("\n")
    until, concurrency, interval, _, since, rate = said.split(" ", 5)
    return SetByHand(
        _KINDS[whose[0]],
        whose[1:],
        None if concurrency == _AS_CONFIGURED else int(concurrency),
        None if interval == _AS_CONFIGURED else rate,
        seconds(since),
        seconds(until),
        by,
    )


def _packed(rate: str | None) -> tuple[str | int, ...]:
    """A rate's interval and tolerance in µs, and its text."""
    if rate is None:
        return _AS_CONFIGURED, _AS_CONFIGURED, ""
    found = Rate.parse(rate)
    if found is None:
        return 0, 0, ""
    text = " ".join(found.text.split())
    return f"{found.interval * 1e6:.3f}", f"{found.tolerance * 1e6:.0f}", text
