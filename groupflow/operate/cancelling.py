"""Cancel all tasks of a group, or of a type, by bounded steps.

A task that waits leaves its place and ends. Of one that is claimed it is noted that it is to be
cancelled. Each step begins where the one before has ended; tasks that come, or move, meanwhile may
be met by it or missed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

import orjson

from groupflow.operate.listing import CHUNK, ListedState, TaskFilter, TaskRow, look_at_tasks
from groupflow.operate.namespace import Away, Namespace
from groupflow.operate.pages import UnknownCursor, each_page, walk
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import delayed_in
from groupflow.store.client import StoreClient
from groupflow.store.clock import microseconds

LOOKED_AT = 400  # places in lines a script; one that ends a task counts as four
AT_ONCE = 100  # tasks a script that are named one by one
STEP = 2.0  # seconds after which a step ends; it ends no line half-walked, apart from a group's
LOOKS = 50  # pages of tasks a step of a type
_MILLISECOND = 1000  # of a sequence number
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
    away: list[Away] = field(default_factory=list)  # the partitions that it passed over

    def add(self, ended: int, asked: Iterable[bytes]) -> None:
        """Count what a script answers."""
        self.waiting += ended
        self.running += [id_.decode() for id_ in asked]

    def include(self, other: Step) -> None:
        """Count another step, too."""
        self.waiting += other.waiting
        self.running += other.running
        self.away += other.away


async def count_step(namespace: Namespace, meant: Several, cursor: str = "0") -> Step:
    """How many would be cancelled, by a bounded look; nothing is written.

    Args:
        namespace: whose tasks.
        meant: which.
        cursor: ``0``, or `next` of the step before.

    Raises:
        StoreUnavailable: no partition answers, or not the group's. Others are in `away`.
        UnknownCursor: the cursor isn't valid here.
    """
    found = Step()
    if meant.group is not None:
        group = meant.group
        delayed_aside = partial(delayed_in, group=group, place="aside")
        aside = await namespace.ask(namespace.place_of(group), delayed_aside)
        found.add(*await namespace.run_at(group, OperatorVerb.COUNT_GROUP, group))
        found.waiting += len(aside)
        return found

    async def look(place: str, client: StoreClient) -> tuple[str, bool]:
        at = _Place.parse(place)
        rows, following = await _page(client, meant, at)
        found.add(0, [row.id.encode() for row in rows if at.state == "running"])
        found.waiting += 0 if at.state == "running" else len(rows)
        return str(following or ""), False

    found.next, found.away = await walk(namespace, cursor, look, LOOKS)
    return found


async def cancel_step(
    namespace: Namespace, meant: Several, by: str, reason: str = "", cursor: str = "0"
) -> Step:
    """Cancel some of them: for `STEP` seconds, and until a line of that type is walked.

    Args:
        namespace: whose tasks.
        meant: which.
        by: who wants it, for the history.
        reason: why, likewise.
        cursor: ``0``, or `next` of the step before.

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
            # A task that tells that the group is drained comes behind this, and stays.
            latest = await cancelling.lines(client, [], "")
            aside = [(id_, group, "") for id_ in await delayed_in(client, group, "aside")]
            await cancelling.each(client, aside)
            await cancelling.lines(client, [group], "", f"{latest:016}")

        await namespace.ask(namespace.place_of(group), cancel_group)
        return done

    async def look(place: str, client: StoreClient) -> tuple[str, bool]:
        ended = done.waiting
        at = _Place.parse(place)
        if not place:
            at = at.since(await cancelling.lines(client, [""], meant.type))
        rows, following = await _page(client, meant, at)
        if at.state == "queued":
            groups = [*dict.fromkeys(row.group for row in rows if row.group)]
            await cancelling.lines(client, groups, meant.type, at.youngest)
            rows = [row for row in rows if not row.group]
        await cancelling.each(client, [(r.id, r.group or "", _sequence(r)) for r in rows])
        # Others have moved up to the places of those that have ended.
        return str(at if done.waiting > ended else following or ""), cancelling.is_late

    done.next, done.away = await walk(namespace, cursor, look, LOOKS)
    return done


def every_step(
    namespace: Namespace, meant: Several, by: str, reason: str = ""
) -> AsyncIterator[Step]:
    """Cancel them all, step by step.

    Raises:
        StoreUnavailable: as of `cancel_step`.
    """
    return each_page(partial(cancel_step, namespace, meant, by, reason))


async def count_all(namespace: Namespace, meant: Several) -> Step:
    """How many would be cancelled.

    Raises:
        StoreUnavailable: as of `count_step`.
    """
    found = Step()
    async for step in each_page(partial(count_step, namespace, meant)):
        found.include(step)
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a step through a partition goes on."""

    number: int = 0  # of the state
    # the millisecond (Unix time) up to which tasks have come that are meant, so that those that
    # come meanwhile don't make it endless; 0 for any
    until: int = 0
    page: str = ""  # where the page begins, as `look_at_tasks` has it

    @classmethod
    def parse(cls, text: str) -> _Place:
        """Read what `__str__` wrote; empty for the beginning.

        Raises:
            UnknownCursor: no step has given it.
        """
        number, _, rest = (text or "0.0.").partition(".")
        until, _, page = rest.partition(".")
        if not (number.isdecimal() and until.isdecimal() and int(number) < len(_STATES)):
            raise UnknownCursor("of another list")
        return cls(int(number), int(until), page)

    def __str__(self) -> str:
        return f"{self.number}.{self.until}.{self.page}".removesuffix(".")

    def since(self, sequence: int) -> _Place:
        """The same for tasks up to this sequence number."""
        return replace(self, until=sequence // _MILLISECOND + 1)

    def after(self, page: str) -> _Place | None:
        """Behind a page, whose next one begins there; none at the end."""
        if page:
            return replace(self, page=page)
        is_last = self.number + 1 == len(_STATES)
        return None if is_last else replace(self, number=self.number + 1, page="")

    @property
    def state(self) -> ListedState:
        return _STATES[self.number]

    @property
    def youngest(self) -> str:
        """The highest sequence number of what is meant; empty for any."""
        return f"{self.until * _MILLISECOND:016}" if self.until else ""


async def _page(
    client: StoreClient, meant: Several, at: _Place
) -> tuple[list[TaskRow], _Place | None]:
    """Tasks that are meant on a page, and where the next one begins, if there is one."""
    page = await look_at_tasks(client, at.state, CHUNK, at.page)
    wanted = TaskFilter(type=meant.type)
    rows = [row for row in page.tasks if wanted.passes(row, page.at)]
    if at.until:
        rows = [row for row in rows if _sequence(row) <= at.youngest]
    return rows, at.after(page.next)


def _sequence(row: TaskRow) -> str:
    return "" if row.enqueued_at is None else f"{microseconds(row.enqueued_at):016}"


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

    async def lines(
        self, client: StoreClient, groups: Sequence[str], type_: str, youngest: str = ""
    ) -> int:
        """Cancel the tasks of a type, or any, in lines: all of them, or some of a group.

        Returns the last sequence number that a task had when this began.
        """
        position: Sequence[int | bytes] = (1, b"")
        packed = orjson.dumps(groups)
        found: list[int] = []
        while position[0]:
            ended, requested, *position, latest = await client.run(
                OperatorVerb.CANCEL_LINES,
                packed,
                *position,
                type_,
                self.asked,
                LOOKED_AT,
                youngest,
            )
            found.append(int(latest))
            self.done.add(ended, requested)
            if self.is_late and not type_:
                break
        self.done.next = "0" if position[0] else None
        return found[0] if found else 0
