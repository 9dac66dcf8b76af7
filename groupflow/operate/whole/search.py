"""Tasks of all partitions that match: searched for page by page, so many pages at most."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from groupflow.core.errors import StoreUnavailable
from groupflow.operate import tasks as one
from groupflow.operate.away import Away
from groupflow.operate.tasks import ListedState, TaskRow
from groupflow.operate.whole.namespace import Namespace, missing

CHUNK = 200  # tasks a script: bounds how long one may block Redis
LOOKS = 20  # scripts a search: bounds how long it takes
_PARTS = 4  # of a cursor


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks to find; an attribute that is empty lets all pass."""

    id: str = ""  # a part of the id
    type: str = ""  # the type, or its beginning: ``import.*``
    tenant: str = ""
    group: str = ""  # a part of the group
    older: float = 0.0  # seconds for which it has waited, or is over, at least

    @property
    def is_set(self) -> bool:
        """Whether it filters at all."""
        return self != Wanted()

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
        if self.type.endswith("*"):
            return name.startswith(self.type[:-1])
        return not self.type or self.type == name


@dataclass(frozen=True, slots=True)
class TasksFound:
    """Some tasks of a state that matched."""

    at: float  # Unix seconds by Redis's clock
    looked_at: int  # how many were tried
    next: str | None  # where to look on, None at the end
    rows: list[TaskRow]
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


async def search_tasks(
    namespace: Namespace,
    state: ListedState,
    wanted: Wanted,
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
    place, begin = _parse(cursor, len(namespace))
    chunk = min(limit, CHUNK) if not wanted.is_set else CHUNK
    rows: list[TaskRow] = []
    away: list[Away] = []
    at, looked, answers = 0.0, 0, 0
    for _ in range(LOOKS):
        look = partial(one.look_at_tasks, state=state, limit=chunk, begin=begin)
        following: tuple[int, str, int] | None = None
        try:
            page = await namespace.ask(place, look)
        except StoreUnavailable:
            if len(namespace) == 1:
                raise
            away = namespace.away
        else:
            answers += 1
            at, looked, following = page.at, looked + len(page.rows), page.next
            rows += [row for row in page.rows if wanted.passes(row, page.at)]
        if following is None:
            place, following = place + 1, one.BEGINNING
        begin = following
        if place == len(namespace) or len(rows) >= limit:
            break
    if not answers:
        missing(away)
    end = None if place == len(namespace) else f"{place}.{begin[0]}.{begin[1]}.{begin[2]}"
    return TasksFound(at, looked, end, rows, away)


def _parse(cursor: str, partitions: int) -> tuple[int, tuple[int, str, int]]:
    if cursor in ("", "0"):
        return 0, one.BEGINNING
    parts = cursor.split(".")
    if len(parts) != _PARTS or not all(part.isdigit() for part in parts):
        raise ValueError("this is no cursor")
    place = int(parts[0])
    if place >= partitions:
        raise ValueError("this cursor is of a namespace with more partitions")
    return place, (int(parts[1]), parts[2], int(parts[3]))
