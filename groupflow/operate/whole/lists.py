"""Pages of a whole namespace's groups, and some of its tasks, in the order that partitions have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from heapq import merge as merge_sorted
from itertools import islice

from groupflow.operate import listing
from groupflow.operate import tasks as one
from groupflow.operate.listing import GroupLook, GroupPage, GroupRow, ListedGroups
from groupflow.operate.pages import Cursor, Merged, Slice, merge
from groupflow.operate.tasks import ListedState
from groupflow.operate.whole.namespace import Namespace
from groupflow.store.client import StoreClient

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
    """A page of the groups in a state, as `listing.look_at_groups` sees those of one store.

    Where that state has no order, partitions come one behind the other.

    Raises:
        StoreUnavailable: no partition answers.
        ValueError: the cursor was written by nobody.
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
    """All rows of a slice: Redis walks a hash in steps, and begins none in its middle."""
    moved = {n: None if each.next is None else int(each.next) for n, each in slices.items()}
    rows = [row for each in slices.values() for row in each.rows]
    return Merged(rows, sum(each.looked for each in slices.values()), cursor.after(moved))


async def list_tasks(
    namespace: Namespace, state: ListedState, limit: int
) -> list[tuple[str, str | None]]:
    """Some tasks of a state, as `tasks.list_tasks` has those of one store.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(lambda client: one.look_at_tasks(client, state, limit))
    rows = merge_sorted(*answers.all, key=lambda row: row[0])
    return [(id_, group) for _, id_, group in islice(rows, limit)]
