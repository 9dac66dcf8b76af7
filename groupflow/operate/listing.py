"""Pages of groups and tasks by state; each costs the same in any backlog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from heapq import merge as merge_sorted
from operator import itemgetter
from typing import Literal, TypeAlias

from groupflow.operate.namespace import Away, Namespace, missing
from groupflow.operate.pages import Cursor, Slice, UnknownCursor, merge, walk
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient

ListedGroups: TypeAlias = Literal["ready", "running", "delayed", "parked", "paused"]
ListedState: TypeAlias = Literal[
    "queued", "running", "delayed", "done", "superseded", "cancelled", "expired", "dropped"
]

_LOOK = 300  # groups a script: bounds how long one may block Redis
_LOOKS = 10  # scripts a page: bounds how long a filter may search
WITHOUT_ORDER = ("parked", "paused")
PAGE = 500  # tasks a script, if all are read
CHUNK = 200  # tasks a script of a search
LOOKS = 20  # scripts a search: bounds how long it takes


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list."""

    group: str
    state: ListedGroups | Literal["drained"]  # the state that the list is of
    waiting: int  # tasks in its lane
    head: str | None = None  # the id of the task that runs, or is next; None if there is none
    type: str | None = None
    tenant: str | None = None
    enqueued_at: float | None = None  # when that task came, Unix seconds
    since: float | None = None  # Unix seconds since when it runs, is parked, paused or drained
    until: float | None = None  # Unix seconds until when it is delayed
    by: str | None = None  # the worker that runs it, the operator or the dead letter that holds it


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some groups of a state."""

    at: float  # Unix seconds by Redis's clock
    total: int  # groups in that state; of drained ones, those that were found
    looked_at: int  # how many of them were tried against the filter for this page
    next: str | None  # cursor of the next page, None at the end
    groups: list[GroupRow]  # those that passed, the next in turn first if there is an order
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


@dataclass(slots=True)
class GroupLook(Slice[GroupRow]):
    """What was seen of the groups of a state."""

    at: float = 0.0  # Unix seconds by Redis's clock
    total: int = 0  # groups in that state


async def look_at_groups(
    client: StoreClient,
    state: ListedGroups,
    *,
    begin: int = 0,
    limit: int = 50,
    text: str = "",
    tenant: str = "",
) -> GroupLook:
    """Some of the groups in a state that lie in one partition.

    A filter is tried on so many groups at most. So there may be fewer than `limit`, or none, and
    yet more to come.

    Args:
        client: the partition.
        state: which.
        begin: 0, or `next` of the look before.
        limit: groups at most; of the parked and paused, those of one step more. 0 only counts.
        text: that the group's name must contain; empty for any.
        tenant: the tenant of its head; empty for any.
    """
    found = GroupLook()
    following = str(begin) if limit else ""  # without a cursor the script only counts
    for _ in range(_LOOKS):
        wanted = limit - len(found.rows)
        reply = await client.run(OperatorVerb.GROUPS, state, following, _LOOK, wanted, text, tenant)
        page = named(reply, "at")
        for row in page["groups"]:
            facts = named(row, "enqueued_at", "since", "until")
            place, turn = found.looked + facts.pop("place"), float(facts.pop("turn", 0))
            found.add(GroupRow(state=state, **facts), turn, place)
        found.at, found.total, following = page["at"], page["total"], page.get("next", "")
        found.looked += page["looked_at"]
        if not following or len(found.rows) >= limit:
            break
    found.next = int(following) if following else None
    return found


async def list_groups(
    namespace: Namespace,
    state: ListedGroups,
    *,
    cursor: str = "0",
    limit: int = 50,
    text: str = "",
    tenant: str = "",
) -> GroupPage:
    """A page of the groups in a state; for the filters see `look_at_groups`.

    If that state has no order, partitions come one after another.

    Raises:
        StoreUnavailable: no partition answers.
        UnknownCursor: the cursor isn't valid here.
    """
    at = Cursor.parse(cursor, len(namespace))
    asked = at.open
    if state in WITHOUT_ORDER:
        known = {each.partition for each in namespace.away}
        asked = [n for n in at.open if n not in known][:1] or asked[:1]
    look = partial(look_at_groups, state=state, text=text, tenant=tenant)
    questions = {
        number: partial(look, begin=place or 0, limit=limit if number in asked else 0)
        for number, place in enumerate(at.places)
    }
    answers = await namespace.ask_each(questions)
    slices = {n: each for n, each in answers.by_partition.items() if n in asked}
    if state in WITHOUT_ORDER:  # Redis walks a hash in steps, and can't begin within one
        limit = sum(len(each.rows) for each in slices.values())
    page = merge(slices, at, limit)
    return GroupPage(
        at=max(look.at for look in answers.all),
        total=sum(look.total for look in answers.all),
        looked_at=page.looked,
        next=page.cursor.told({each.partition for each in answers.away}),
        groups=page.rows,
        away=answers.away,
    )


_BEGINNING = "1.0.0"  # of a partition's tasks: part, place and depth, as `list.lua` has them


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task in a list."""

    id: str
    type: str  # empty if unknown
    group: str | None = None  # its group, None for a plain task
    tenant: str | None = None  # its tenant, None if it names none, or is over
    attempt: int = 1  # the attempt that runs or is next; of a finished task, the one that ended it
    enqueued_at: float | None = None  # when it came, Unix seconds; None if it is over
    since: float | None = None  # Unix seconds since when it runs, or is over
    # Unix seconds before which it doesn't start, where it is delayed, or has a time of its own
    until: float | None = None
    pool: str | None = None  # whose workers pull it; None where daemons run it


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks of a state, by one look."""

    at: float  # Unix seconds by Redis's clock
    tasks: list[TaskRow]
    turns: list[int]  # for each of them the number by which rows of several stores are sorted
    next: str  # where the next page begins, empty at the end
    looked_at: int = 0  # of tasks that are over: how many were, for this page


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks to find; an attribute that is empty lets all pass."""

    id: str = ""  # a part of the id
    type: str = ""  # the type, or its beginning: ``import.*``
    tenant: str = ""
    group: str = ""  # a part of the group
    older: float = 0.0  # seconds for which it has waited, or is over, at least

    @property
    def is_set(self) -> bool:
        """Whether it filters at all."""
        return self != TaskFilter()

    def passes(self, row: TaskRow, now: float) -> bool:
        """Whether a task matches; `now` is Redis's clock."""
        came = row.enqueued_at if row.enqueued_at is not None else row.since
        return (
            self.id in row.id
            and (not self.type or is_of_type(row.type, self.type))
            and (not self.tenant or self.tenant == row.tenant)
            and (not self.group or self.group in (row.group or ""))
            and (not self.older or (came is not None and now - came >= self.older))
        )


def is_of_type(name: str, wanted: str) -> bool:
    """Whether a type is the wanted one, or begins so: ``import.*``."""
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted


@dataclass(frozen=True, slots=True)
class TaskList:
    """Some tasks of a state that matched, the next to run first if there is an order."""

    state: ListedState
    tasks: list[TaskRow]
    looked_at: int  # how many were tried against the filter
    next: str | None  # cursor of the next page, None at the end
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this
    is_whole: bool = True  # of tasks that are over: whether every one was looked at
    at: float = 0.0  # Unix seconds by Redis's clock; 0 of a search


async def look_at_tasks(
    client: StoreClient,
    state: ListedState,
    limit: int,
    begin: str = "",
    wanted: bytes = b"",
) -> TaskPage:
    """Some tasks of a state that lie in one partition.

    Of waiting tasks the next to run comes first; groups that run, wait or stand follow. Of running
    ones the longest comes first. Of finished tasks a page may have more than `limit`, or none and
    yet a next; they are in no order, and `wanted` is which, as `list.lua` has it. It begins at the
    beginning, or at `next` of the page before.

    Raises:
        UnknownCursor: `begin` is neither.
    """
    place = (begin or _BEGINNING).split(".")
    if len(place) != _BEGINNING.count(".") + 1:
        raise UnknownCursor("of another list")
    reply = named(await client.run(OperatorVerb.LIST, state, limit, *place, wanted), "at")
    found = [named(row, "enqueued_at", "since", "until") for row in reply["tasks"]]
    turns = [int(facts.pop("turn")) for facts in found]
    rows = [TaskRow(**each) for each in found]
    following = "{part}.{place}.{deep}".format(**reply) if "part" in reply else ""
    return TaskPage(reply["at"], rows, turns, following, reply["looked_at"])


async def list_tasks(namespace: Namespace, state: ListedState, limit: int) -> TaskList:
    """The first tasks of a state, in the order of `look_at_tasks`, `limit` of them at most.

    If there is a `next`, there may be more: `search_tasks` goes on there, of several partitions
    with the first task of the first one. For counts see `read_totals`, for the dead `DeadLetters`,
    for the others that are over `list_ended`.

    Raises:
        StoreUnavailable: no partition answers.
    """

    async def look(client: StoreClient) -> TaskPage:
        page = await look_at_tasks(client, state, min(limit, PAGE))
        for _ in range(LOOKS):
            left = limit - len(page.tasks)
            if not page.next or left <= 0:
                break
            more = await look_at_tasks(client, state, min(left, PAGE), page.next)
            tasks, turns = page.tasks + more.tasks, page.turns + more.turns
            page = TaskPage(more.at, tasks, turns, more.next)
        return page

    answers = await namespace.ask_all(look)
    pages = [zip(page.turns, page.tasks, strict=True) for page in answers.all]
    found = [row for _, row in merge_sorted(*pages, key=itemgetter(0))]
    begin = answers.all[0].next if len(namespace) == 1 else _BEGINNING
    is_cut = len(found) > limit or any(page.next for page in answers.all)
    following = f"0.{begin}" if is_cut else None
    at = max(page.at for page in answers.all)
    return TaskList(state, found[:limit], len(found), following, answers.away, at=at)


async def every_task(namespace: Namespace, state: ListedState) -> AsyncIterator[TaskPage]:
    """All tasks of a state, page by page, one partition after another.

    A task that moves meanwhile may be missed, or given twice. Of several partitions, one that
    doesn't answer is left out, and `namespace.away` names it.

    Raises:
        StoreUnavailable: the only one doesn't answer.
    """
    pages: list[TaskPage] = []

    async def look(place: str, client: StoreClient) -> tuple[str, bool]:
        pages.append(await look_at_tasks(client, state, PAGE, place))
        return pages[-1].next, True

    cursor: str | None = "0"
    while cursor is not None:
        cursor, _ = await walk(namespace, cursor, look, 1)
        while pages:
            yield pages.pop()


async def search_tasks(
    namespace: Namespace,
    state: ListedState,
    wanted: TaskFilter,
    *,
    cursor: str = "0",
    limit: int = 100,
) -> TaskList:
    """Look for tasks, one partition after another, the next to run first in each.

    It may return up to `CHUNK` more than `limit`, since it ends only with a page. It may return
    fewer, or none, and yet have a `next`.

    Raises:
        StoreUnavailable: no partition that was asked answers.
        UnknownCursor: the cursor isn't valid here.
    """
    chunk = CHUNK if wanted.is_set else min(limit, CHUNK)
    rows: list[TaskRow] = []
    pages: list[int] = []  # rows of each that was read

    async def look(place: str, client: StoreClient) -> tuple[str, bool]:
        page = await look_at_tasks(client, state, chunk, place)
        pages.append(len(page.tasks))
        rows.extend(row for row in page.tasks if wanted.passes(row, page.at))
        return page.next, len(rows) >= limit

    following, away = await walk(namespace, cursor, look, LOOKS)
    if not pages:
        missing(away)
    return TaskList(state, rows, sum(pages), following, away)
