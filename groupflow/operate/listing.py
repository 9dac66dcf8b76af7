"""Pages of groups and tasks by state; each costs the same in any backlog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from heapq import merge as merge_sorted
from itertools import islice
from operator import itemgetter
from typing import Literal, TypeAlias

from groupflow.core.errors import StoreUnavailable
from groupflow.operate.namespace import Away, Namespace, missing
from groupflow.operate.pages import Cursor, Merged, Slice, merge
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient

ListedGroups: TypeAlias = Literal["ready", "running", "delayed", "parked", "paused"]
ListedState: TypeAlias = Literal["queued", "running", "delayed", "done", "superseded"]

_LOOK = 300  # groups a script: bounds how long one may block Redis
_LOOKS = 10  # scripts a page: bounds how long a filter may search
WITHOUT_ORDER = ("parked", "paused")
PAGE = 500  # tasks a script, if all are read
CHUNK = 200  # tasks a script of a search
LOOKS = 20  # scripts a search: bounds how long it takes
_PARTS = 4  # of a search's cursor
_UNKNOWN = dict.fromkeys(("group", "tenant", "enqueued_at"))


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list."""

    group: str
    state: ListedGroups  # the state that the list is of
    waiting: int  # tasks in its lane
    head: str | None = None  # the id of the task that runs, or is next; None if there is none
    type: str | None = None
    tenant: str | None = None
    enqueued_at: float | None = None  # when that task came, Unix seconds
    since: float | None = None  # Unix seconds since when it runs, is parked or is paused
    until: float | None = None  # Unix seconds until when it is delayed
    by: str | None = None  # the worker that runs it, the operator or the dead letter that holds it


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some groups of a state."""

    at: float  # Unix seconds by Redis's clock
    total: int  # groups in that state
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
        ValueError: the cursor isn't valid here.
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
    page = _joined(slices, at) if state in WITHOUT_ORDER else merge(slices, at, limit)
    return GroupPage(
        at=max(look.at for look in answers.all),
        total=sum(look.total for look in answers.all),
        looked_at=page.looked,
        next=page.cursor.told({each.partition for each in answers.away}),
        groups=page.rows,
        away=answers.away,
    )


def _joined(slices: dict[int, GroupLook], cursor: Cursor) -> Merged[GroupRow]:
    """All rows of a slice: Redis walks a hash in steps, and can't begin within one."""
    rows = [row for each in slices.values() for row in each.rows]
    following = cursor.after({number: each.next for number, each in slices.items()})
    return Merged(rows, sum(each.looked for each in slices.values()), following)


Begin: TypeAlias = tuple[int, str, int]
"""Where a page of one partition's tasks begins, as `list.lua` has it."""
BEGINNING: Begin = (1, "0", 0)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task in a list."""

    id: str
    type: str  # empty if unknown
    group: str | None  # its group, None for a plain task
    tenant: str | None  # its tenant, None if it names none, or is over
    attempt: int  # the attempt that runs or is next; of a finished task, the one that ended it
    enqueued_at: float | None  # when it came, Unix seconds; None if it is over
    since: float | None = None  # Unix seconds since when it runs, or is over
    until: float | None = None  # Unix seconds until when it is delayed


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks of a state, by one look."""

    at: float  # Unix seconds by Redis's clock
    rows: list[TaskRow]
    turns: list[int]  # for each row the number by which rows of several stores are sorted
    next: Begin | None  # where the next page begins, None at the end


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
            and self._is_of_type(row.type)
            and (not self.tenant or self.tenant == row.tenant)
            and (not self.group or self.group in (row.group or ""))
            and (not self.older or (came is not None and now - came >= self.older))
        )

    def _is_of_type(self, name: str) -> bool:
        is_beginning = self.type.endswith("*")
        return name.startswith(self.type[:-1]) if is_beginning else self.type in {"", name}


@dataclass(frozen=True, slots=True)
class TasksFound:
    """Some tasks of a state that matched."""

    at: float  # Unix seconds by Redis's clock
    looked_at: int  # how many were tried
    next: str | None  # where to look on, None at the end
    rows: list[TaskRow]
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


async def look_at_tasks(
    client: StoreClient,
    state: ListedState,
    limit: int,
    begin: Begin = BEGINNING,
) -> TaskPage:
    """Some tasks of a state that lie in one partition.

    Of waiting tasks the next to run comes first; groups that run, wait or stand follow. Of running
    ones the longest comes first. Of finished tasks a page may have more than `limit`, or none and
    yet a next.
    """
    reply = named(await client.run(OperatorVerb.LIST, state, limit, *begin), "at")
    found = [named(row, "enqueued_at", "since", "until") for row in reply["tasks"]]
    turns = [int(facts.pop("turn")) for facts in found]
    rows = [TaskRow(**{**_UNKNOWN, **each, "attempt": int(each["attempt"])}) for each in found]
    following = (reply["part"], reply["place"], reply["deep"]) if "part" in reply else None
    return TaskPage(reply["at"], rows, turns, following)


async def list_tasks(namespace: Namespace, state: ListedState, limit: int) -> TaskPage:
    """The first tasks of a state, in the order of `look_at_tasks`, `limit` of them at most.

    For counts see `read_totals`, for the dead `DeadLetters`.

    Raises:
        StoreUnavailable: no partition answers.
    """
    answers = await namespace.ask_all(lambda client: look_at_tasks(client, state, limit))
    pages = [zip(page.turns, page.rows, strict=True) for page in answers.all]
    found = [*islice(merge_sorted(*pages, key=itemgetter(0)), limit)]
    at = max(page.at for page in answers.all)
    return TaskPage(at, [row for _, row in found], [turn for turn, _ in found], None)


async def every_task(namespace: Namespace, state: ListedState) -> AsyncIterator[TaskPage]:
    """All tasks of a state, page by page, one partition after another.

    A task that moves meanwhile may be missed, or given twice. Of several partitions, one that
    doesn't answer is left out, and `namespace.away` names it.

    Raises:
        StoreUnavailable: the only one doesn't answer.
    """
    async for page, _ in _pages(namespace, state, PAGE, (0, BEGINNING)):
        if page is not None:
            yield page


async def search_tasks(
    namespace: Namespace,
    state: ListedState,
    wanted: TaskFilter,
    *,
    cursor: str = "0",
    limit: int = 100,
) -> TasksFound:
    """Look for tasks, one partition after another, the next to run first in each.

    It may return up to `CHUNK` more than `limit`, since it ends only with a page. It may return
    fewer, or none, and yet have a `next`.

    Raises:
        StoreUnavailable: no partition that was asked answers.
        ValueError: the cursor isn't valid here.
    """
    position = _parse(cursor, len(namespace))
    chunk = min(limit, CHUNK) if not wanted.is_set else CHUNK
    rows: list[TaskRow] = []
    at, looked, looks, answers = 0.0, 0, 0, 0
    async for page, following in _pages(namespace, state, chunk, position):
        looks, position = looks + 1, following
        if page is not None:
            answers += 1
            at, looked = page.at, looked + len(page.rows)
            rows += [row for row in page.rows if wanted.passes(row, page.at)]
        if looks == LOOKS or len(rows) >= limit:
            break
    away = namespace.away if answers < looks else []
    if not answers:
        missing(away)
    place, begin = position
    end = None if place == len(namespace) else f"{place}.{begin[0]}.{begin[1]}.{begin[2]}"
    return TasksFound(at, looked, end, rows, away)


async def _pages(
    namespace: Namespace, state: ListedState, size: int, position: tuple[int, Begin]
) -> AsyncIterator[tuple[TaskPage | None, tuple[int, Begin]]]:
    """Pages of one partition after another, each with the position of the next.

    ``None`` in place of a page: its partition doesn't answer, and is left out.

    Raises:
        StoreUnavailable: the only one doesn't answer.
    """
    place, begin = position
    while place < len(namespace):
        page = None
        try:
            page = await namespace.ask(
                place, partial(look_at_tasks, state=state, limit=size, begin=begin)
            )
        except StoreUnavailable:
            if len(namespace) == 1:
                raise
        following = page and page.next
        place, begin = (place, following) if following else (place + 1, BEGINNING)
        yield page, (place, begin)


def _parse(cursor: str, partitions: int) -> tuple[int, Begin]:
    if cursor in ("", "0"):
        return 0, BEGINNING
    parts = cursor.split(".")
    if len(parts) != _PARTS or not all(part.isdigit() for part in parts):
        raise ValueError("this is no cursor")
    place = int(parts[0])
    if place >= partitions:
        raise ValueError("this cursor is of a namespace with more partitions")
    return place, (int(parts[1]), parts[2], int(parts[3]))
