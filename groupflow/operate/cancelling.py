"""Cancel all tasks of a group, or of a type, by bounded steps.

A task that waits leaves its place and ends. Of one that is claimed it is noted that it is to be
cancelled. Each step begins where the one before has ended; tasks that come, or move, meanwhile may
be met by it or missed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic

import orjson

from groupflow.operate.listing import (
    CHUNK,
    ListedState,
    TaskFilter,
    TaskRow,
    look_at_tasks,
)
from groupflow.operate.namespace import Namespace
from groupflow.operate.pages import UnknownCursor, walk
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import delayed_in
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds

BEGIN = "0"
LOOKED_AT = 1000  # places in lines a script; one that ends a task counts as four
AT_ONCE = 100  # tasks a script that are named one by one
STEP = 2.0  # seconds after which a step ends; it ends no line half-walked, apart from a group's
LOOKS = 50  # pages of tasks a step of a type
_STATES: tuple[ListedState, ...] = ("queued", "delayed", "running")


@dataclass(frozen=True, slots=True)
class Several:
    """The tasks of a group, or of a type; one of the two is named."""

    group: str | None = None
    type: str = ""  # the type, or its beginning: ``import.*``

    def __str__(self) -> str:
        return f"type {self.type}" if self.group is None else f"group {self.group}"


@dataclass(slots=True)
class Step:
    """What a step has cancelled, or would have."""

    waiting: int = 0  # tasks that waited, and have ended
    running: list[str] = field(default_factory=list)  # ids of those that run, and are asked to end
    next: str | None = None  # where the next step begins, None at the end

    def add(self, ended: int, asked: Iterable[bytes]) -> None:
        """Count what a script answers."""
        self.waiting += ended
        self.running += [id_.decode() for id_ in asked]


async def count_step(namespace: Namespace, meant: Several, cursor: str = BEGIN) -> Step:
    """How many would be cancelled, by a bounded look; nothing is written.

    Args:
        namespace: whose tasks.
        meant: which.
        cursor: `BEGIN`, or `next` of the step before.

    Raises:
        StoreUnavailable: no partition answers, or not the group's. Others are in `away`.
        UnknownCursor: the cursor isn't valid here.
    """
    found = Step()
    if meant.group is not None:
        group = meant.group
        aside = await namespace.ask(namespace.place_of(group), lambda client: _aside(client, group))
        found.add(*await namespace.run_at(group, OperatorVerb.COUNT_GROUP, group))
        found.waiting += len(aside)
        return found

    async def look(place: str, client: StoreClient) -> tuple[str, bool]:
        state, rows, following = await _page(client, meant, place)
        found.add(0, [row.id.encode() for row in rows if state == "running"])
        found.waiting += 0 if state == "running" else len(rows)
        return following, False

    found.next, _ = await walk(namespace, cursor, look, LOOKS)
    return found


async def cancel_step(
    namespace: Namespace, meant: Several, by: str, reason: str = "", cursor: str = BEGIN
) -> Step:
    """Cancel some of them: for `STEP` seconds, and until a line of that type is walked.

    Args:
        namespace: whose tasks.
        meant: which.
        by: who wants it, for the history.
        reason: why, likewise.
        cursor: `BEGIN`, or `next` of the step before.

    Raises:
        StoreUnavailable: no partition answers, or not the group's. Others are in `away`; what
            didn't answer may have cancelled some.
        UnknownCursor: the cursor isn't valid here.
    """
    cancelling = _Cancelling(orjson.dumps([by, reason]))
    done = cancelling.done
    if meant.group is not None:
        group = meant.group

        async def cancel_group(client: StoreClient) -> None:
            aside = [(id_, group, "") for id_ in await _aside(client, group)]
            await cancelling.each(client, aside)
            await cancelling.lines(client, [group], "")

        await namespace.ask(namespace.place_of(group), cancel_group)
        return done

    async def look(place: str, client: StoreClient) -> tuple[str, bool]:
        ended = done.waiting
        if not place:
            await cancelling.lines(client, [""], meant.type)
        state, rows, following = await _page(client, meant, place)
        if state == "queued":
            groups = [*dict.fromkeys(row.group for row in rows if row.group)]
            await cancelling.lines(client, groups, meant.type)
            rows = [row for row in rows if not row.group]
        await cancelling.each(client, [(r.id, r.group or "", _sequence(r)) for r in rows])
        # Others have moved up to the places of those that have ended.
        again = place or f"0.{_FIRST}"
        return again if done.waiting > ended else following, cancelling.is_late

    done.next, _ = await walk(namespace, cursor, look, LOOKS)
    return done


async def every_step(
    namespace: Namespace, meant: Several, by: str, reason: str = ""
) -> AsyncIterator[Step]:
    """Cancel them all, step by step.

    Raises:
        StoreUnavailable: as of `cancel_step`.
    """
    cursor: str | None = BEGIN
    while cursor is not None:
        step = await cancel_step(namespace, meant, by, reason, cursor)
        yield step
        cursor = step.next


async def count_all(namespace: Namespace, meant: Several) -> Step:
    """How many would be cancelled.

    Raises:
        StoreUnavailable: as of `count_step`.
    """
    found, cursor = Step(), BEGIN
    while True:
        step = await count_step(namespace, meant, cursor)
        found.waiting += step.waiting
        found.running += step.running
        if step.next is None:
            return found
        cursor = step.next


_FIRST = "1.0.0"  # the beginning of a state's list, as `look_at_tasks` has it


async def _page(
    client: StoreClient, meant: Several, place: str
) -> tuple[ListedState, list[TaskRow], str]:
    """Tasks of the type on a page: their state, they, and where the next page begins.

    Raises:
        UnknownCursor: the place is none.
    """
    number, _, begin = (place or f"0.{_FIRST}").partition(".")
    if int(number) >= len(_STATES):
        raise UnknownCursor("of another list")
    state = _STATES[int(number)]
    page = await look_at_tasks(client, state, CHUNK, begin)
    rows = [row for row in page.rows if TaskFilter(type=meant.type).passes(row, page.at)]
    if page.next:
        return state, rows, f"{number}.{page.next}"
    is_last = int(number) + 1 == len(_STATES)
    return state, rows, "" if is_last else f"{int(number) + 1}.{_FIRST}"


def _sequence(row: TaskRow) -> str:
    return "" if row.enqueued_at is None else f"{microseconds(row.enqueued_at):016}"


async def _aside(client: StoreClient, group: str) -> list[str]:
    return await delayed_in(client, group, "aside")


@dataclass(slots=True)
class _Cancelling:
    """One step: who wants it and why (JSON), and what it has done."""

    asked: bytes
    done: Step = field(default_factory=Step)
    end: float = field(default_factory=lambda: monotonic() + STEP)

    @property
    def is_late(self) -> bool:
        """Whether it is time to end the step."""
        return monotonic() >= self.end

    async def each(self, client: StoreClient, tasks: Sequence[tuple[str, str, str]]) -> None:
        """Cancel tasks: of each its id, its group, and its sequence number if that is known."""
        for begin in range(0, len(tasks), AT_ONCE):
            some = orjson.dumps(tasks[begin : begin + AT_ONCE])
            self.done.add(*await client.run(OperatorVerb.CANCEL_EACH, self.asked, some))

    async def lines(self, client: StoreClient, groups: Sequence[str], type_: str) -> None:
        """Cancel the tasks of a type, or any, in lines; all of them, or some of a group."""
        position: Sequence[int | bytes] = (1, b"")
        packed = orjson.dumps(groups)
        while position[0] and (type_ or not self.is_late):
            ended, requested, *position = await client.run(
                OperatorVerb.CANCEL_LINES, packed, *position, type_, self.asked, LOOKED_AT
            )
            self.done.add(ended, requested)
        self.done.next = BEGIN if position[0] else None
