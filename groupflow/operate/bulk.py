"""All dead letters that match a filter, by bounded steps: what is done to them all is done so.

A step goes from the latest death to the oldest, and its cursor counts those that are left, older.
So letters that go meanwhile, or die (even those that a step before has redriven), don't move it,
and the steps end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from groupflow.core.errors import StoreUnavailable
from groupflow.operate.dead import LOOKS, DeadLetter, Filter, read_letters
from groupflow.operate.namespace import Namespace

BEGIN = "0"
MOST = 500  # letters a step
_APART = "."


@dataclass(frozen=True, slots=True)
class Step:
    """Some of the dead letters that match, all of one partition."""

    letters: list[DeadLetter]
    next: str | None  # where the next step begins, None at the end


async def step(namespace: Namespace, wanted: Filter, cursor: str = BEGIN, most: int = MOST) -> Step:
    """Some of the matching dead letters, by a bounded look.

    Args:
        namespace: whose letters.
        wanted: which.
        cursor: `BEGIN`, or `next` of the step before.
        most: letters at most.

    Raises:
        StoreUnavailable: no partition answers. One alone is passed over, and is in `away`.
        ValueError: the cursor isn't valid here.
    """
    place, left = _parse(cursor, len(namespace))
    found: list[DeadLetter] = []
    following = None if place + 1 == len(namespace) else f"{place + 1}"
    for _ in range(LOOKS):
        rows = most - len(found)
        look = partial(read_letters, place=place, wanted=wanted, most=rows, left=left)
        try:
            read = await namespace.ask(place, look)
        except StoreUnavailable:
            if len(namespace.away) == len(namespace):
                raise
            return Step(found, following)
        found += [letter for _, letter in read.letters]
        left = read.left
        if not left:
            return Step(found, following)
        if len(found) >= most:
            break
    return Step(found, f"{place}{_APART}{left}")


async def each_step(namespace: Namespace, wanted: Filter) -> AsyncIterator[list[DeadLetter]]:
    """The letters of all steps.

    Raises:
        StoreUnavailable: no partition answers.
    """
    cursor: str | None = BEGIN
    while cursor is not None:
        found = await step(namespace, wanted, cursor)
        yield found.letters
        cursor = found.next


async def count(namespace: Namespace, wanted: Filter) -> int:
    """How many match.

    Raises:
        StoreUnavailable: no partition answers.
    """
    return sum([len(letters) async for letters in each_step(namespace, wanted)])


def _parse(cursor: str, partitions: int) -> tuple[int, int | None]:
    """The partition where a step begins, and how many of its letters are left; None: all."""
    place, apart, left = cursor.partition(_APART)
    if int(place) >= partitions:
        raise ValueError("this cursor is of a namespace with more partitions")
    return int(place), int(left) if apart else None
