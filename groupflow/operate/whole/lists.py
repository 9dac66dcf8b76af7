"""Pages of a whole namespace's groups, and some of its tasks, in the order of each partition."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from heapq import merge as merge_sorted
from itertools import islice

from groupflow.core.errors import StoreUnavailable
from groupflow.operate import listing
from groupflow.operate import tasks as one
from groupflow.operate.listing import GroupLook, GroupPage, GroupRow, ListedGroups
from groupflow.operate.pages import Cursor, Merged, Slice, merge
from groupflow.operate.tasks import ListedState, TaskRow
from groupflow.operate.whole.namespace import Namespace
from groupflow.store.client import StoreClient

PAGE = 500  # tasks a script: bounds how long one may block Redis
_WITHOUT_ORDER = ("parked", "paused")


async def list_groups(
    namespace: Namespace,
    state: ListedGroups,
    *,
    cursor: str = "0",
    limit: int = 50,
    text: str = "",
    tenant: str = "",
) -> GroupPage:
    """A page of the groups in a state; `listing.look_at_groups` has those of one store.

    If that state has no order, partitions come one after another.

    Raises:
        StoreUnavailable: no partition answers.
        ValueError: the cursor isn't valid here.
    """

    def page_at(place: str) -> Callable[[StoreClient], Awaitable[GroupLook]]:
        return lambda client: listing.look_at_groups(
            client, state, cursor=place, limit=limit, text=text, tenant=tenant
        )

    at = Cursor.parse(cursor, len(namespace))
    if len(namespace) == 1:
        look = await namespace.ask(0, page_at(cursor or "0"))
        return GroupPage(look.at, look.total, look.slice.looked, look.slice.next, look.slice.rows)
    asked = at.open
    if state in _WITHOUT_ORDER:
        known = {each.partition for each in namespace.away}
        asked = [n for n in at.open if n not in known][:1] or asked[:1]
    answers = await namespace.ask_each(
        {
            number: page_at(str(at.places[number]))
            if number in asked
            else lambda client: listing.count_groups(client, state)
            for number in range(len(namespace))
        }
    )
    slices = {n: look.slice for n, look in answers.by_partition.items() if n in asked}
    page = _joined(slices, at) if state in _WITHOUT_ORDER else merge(slices, at, limit)
    return GroupPage(
        at=max(look.at for look in answers.all),
        total=sum(look.total for look in answers.all),
        looked_at=page.looked,
        next=page.cursor.told({each.partition for each in answers.away}),
        groups=page.rows,
        away=answers.away,
    )


def _joined(slices: dict[int, Slice[GroupRow]], cursor: Cursor) -> Merged[GroupRow]:
    """All rows of a slice: Redis walks a hash in steps, and can't begin within one."""
    moved = {n: None if each.next is None else int(each.next) for n, each in slices.items()}
    rows = [row for each in slices.values() for row in each.rows]
    return Merged(rows, sum(each.looked for each in slices.values()), cursor.after(moved))


@dataclass(frozen=True, slots=True)
class Tasks:
    """Some tasks of a state."""

    at: float  # Unix seconds by Redis's clock
    rows: list[TaskRow]


async def list_tasks(namespace: Namespace, state: ListedState, limit: int) -> Tasks:
    """Some tasks of a state; `tasks.list_tasks` has those of one store.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(lambda client: one.look_at_tasks(client, state, limit))
    pages = [zip(page.turns, page.rows, strict=True) for page in answers.all]
    rows = merge_sorted(*pages, key=_turn)
    return Tasks(max(page.at for page in answers.all), [row for _, row in islice(rows, limit)])


async def every_task(namespace: Namespace, state: ListedState) -> AsyncIterator[Tasks]:
    """All tasks of a state, page by page, one partition after another.

    A task that moves meanwhile may be missed, or given twice. Of several partitions, one that
    doesn't answer is left out, and `namespace.away` names it.

    Raises:
        StoreUnavailable: the only one doesn't answer.
    """
    for number in range(len(namespace)):
        begin: tuple[int, str, int] | None = one.BEGINNING
        while begin is not None:
            look = partial(one.look_at_tasks, state=state, limit=PAGE, begin=begin)
            try:
                page = await namespace.ask(number, look)
            except StoreUnavailable:
                if len(namespace) == 1:
                    raise
                break
            yield Tasks(page.at, page.rows)
            begin = page.next


def _turn(row: tuple[int, TaskRow]) -> int:
    return row[0]
