"""Pages of lists over all partitions: of several ordered ones one, or one list after another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.operate.namespace import Away, Namespace
from groupflow.store.client import StoreClient

_Row = TypeVar("_Row")
_APART = "-"  # between the parts of a cursor


class _HasNext(Protocol):
    @property
    def next(self) -> Any: ...  # where the next page begins; None or empty at the end


_Page = TypeVar("_Page", bound=_HasNext)


async def each_page(
    ask: Callable[[Any], Awaitable[_Page]], begin: Any = "0"
) -> AsyncIterator[_Page]:
    """Every page of a list, each asked for by the cursor that the one before it told."""
    page = await ask(begin)
    yield page
    while page.next:
        page = await ask(page.next)
        yield page


class UnknownCursor(GroupflowError):
    """No page has given a cursor, or one of another number of partitions did."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this cursor is {why}: begin with 0.")


@dataclass(slots=True)
class Slice(Generic[_Row]):
    """Rows of one store's list, from a place on."""

    rows: list[_Row] = field(default_factory=list)
    # of each row its turn, by which rows of several stores are ordered, and how many entries were
    # looked at up to it
    turns: list[tuple[float, int]] = field(default_factory=list)
    looked: int = 0  # entries that were looked at
    next: int | None = None  # where the next slice begins, None at the end

    def add(self, row: _Row, turn: float, place: int) -> None:
        """Append a row."""
        self.rows.append(row)
        self.turns.append((turn, place))


@dataclass(frozen=True, slots=True)
class Merged(Generic[_Row]):
    """Rows of several stores' lists in one order."""

    rows: list[_Row]
    looked: int  # entries that were looked at for them
    cursor: Cursor  # where the next ones begin


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page begins, in the list of each of several stores."""

    places: tuple[int | None, ...]  # entries to pass over; None at the end of a list

    @classmethod
    def parse(cls, text: str, count: int) -> Cursor:
        """Read what `__str__` wrote.

        Args:
            text: that, or ``0`` for the beginning.
            count: how many stores there are.

        Raises:
            UnknownCursor: it is of another number of stores.
        """
        if text in ("", "0"):
            return cls((0,) * count)
        parts = text.split(_APART)
        if len(parts) != count:
            raise UnknownCursor("of a namespace with another number of partitions")
        return cls(tuple(int(part) if part else None for part in parts))

    def __str__(self) -> str:
        return _APART.join("" if place is None else str(place) for place in self.places)

    @property
    def open(self) -> list[int]:
        """The stores whose lists aren't at their end."""
        return [number for number, place in enumerate(self.places) if place is not None]

    def told(self, away: Collection[int]) -> str | None:
        """What `parse` takes; None if only lists of stores that are away go on."""
        return str(self) if any(number not in away for number in self.open) else None

    def after(self, moved: Mapping[int, int | None]) -> Cursor:
        """The cursor after some stores' lists were read on."""
        return Cursor(tuple(moved.get(n, place) for n, place in enumerate(self.places)))


def merge(slices: Mapping[int, Slice[_Row]], cursor: Cursor, limit: int) -> Merged[_Row]:
    """The first rows of several slices, in the order of their turns.

    It ends early if a slice has no more rows, but its list goes on: the next row there may have
    its turn first.

    Args:
        slices: of the stores that answered, by their number.
        cursor: where they begin.
        limit: rows at most.
    """
    read = dict.fromkeys(slices, 0)
    rows: list[_Row] = []
    while len(rows) < limit:
        waiting = [n for n, each in slices.items() if read[n] < len(each.rows)]
        if not waiting or any(n not in waiting and each.next for n, each in slices.items()):
            break
        first = min(waiting, key=lambda n: slices[n].turns[read[n]])
        rows.append(slices[first].rows[read[first]])
        read[first] += 1
    moved: dict[int, int | None] = {}
    looked = 0
    for number, each in slices.items():
        here = read[number]
        if here == len(each.rows):
            seen, moved[number] = each.looked, each.next
        else:
            seen = each.turns[here - 1][1] if here else 0
            moved[number] = (cursor.places[number] or 0) + seen
        looked += seen
    return Merged(rows, looked, cursor.after(moved))


async def walk(
    namespace: Namespace,
    cursor: str,
    look: Callable[[str, StoreClient], Awaitable[tuple[str, bool]]],
    looks: int,
) -> tuple[str | None, list[Away]]:
    """Look at one partition after another.

    Args:
        namespace: the partitions.
        cursor: ``0``, or what the walk before returned.
        look: looks at some of a partition's list, from a place on. Returns its next place, and
            whether it has found enough. An empty place is the beginning, and the end.
        looks: how many, at most.

    Returns:
        The cursor of the next look, None at the end; and the partitions that were passed over,
        since they didn't answer, even if they have answered something else since.

    Raises:
        StoreUnavailable: no partition answers.
        UnknownCursor: it isn't valid here.
    """
    number, _, place = cursor.partition(".")
    if not number.isdecimal() or int(number) >= len(namespace):
        raise UnknownCursor("of a namespace with more partitions")
    partition, is_enough, gone = int(number), False, list[Away]()
    while partition < len(namespace) and looks and not is_enough:
        looks -= 1
        try:
            place, is_enough = await namespace.ask(partition, partial(look, place))
        except StoreUnavailable:
            if len(namespace) in (1, len(namespace.away)):
                raise
            gone += [each for each in namespace.away if each.partition == partition]
            place = ""
        partition += not place
    return f"{partition}.{place}".removesuffix(".") if partition < len(namespace) else None, gone
