"""What the history says of tasks that are over: which of a group ended lately, what drained."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.operate.listing import (
    GroupPage,
    GroupRow,
    ListedState,
    TaskFilter,
    TaskList,
    TaskRow,
    look_at_tasks,
)
from groupflow.operate.namespace import Namespace
from groupflow.operate.pages import UnknownCursor
from groupflow.operate.requests import CancelRequest
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import MICROSECONDS, microseconds, seconds
from groupflow.store.keys import SEQUENCE_DIGITS

EndName: TypeAlias = Literal["done", "cancelled", "expired", "superseded", "dropped", "swept"]

LATELY = 10  # tasks of a group
KEPT = 10_000  # tasks of groups that ended in a partition, of which its lists have the ids
HOUR = 3600.0  # seconds of a group's ends that are told minute by minute
LOOKED_AT = 50_000  # tasks of a partition's history, among which the latest are sought
_STEP = 250  # of those a script
_OLDER = "2."  # with what places in the older segment of the history begin
_LOOK = 250  # of those a script: bounds how long one may block Redis
EVERY = TaskFilter()
_LOOK_DRAINED = 100  # the same, where their groups are looked at too


@dataclass(frozen=True, slots=True)
class Ended:
    """A task of a group that is over, and was no dead letter."""

    id: str
    state: EndName  # how it ended
    type: str
    attempt: int  # the one that ended it
    since: float  # when it ended, Unix seconds
    # the next four only of a task that is done
    enqueued_at: float | None = None  # when it came, Unix seconds
    began_at: float | None = None  # when its last attempt began, Unix seconds
    seconds: float | None = None  # how long that took
    daemon: str | None = None  # on which daemon; of a pool's worker `pool/<pool>/<worker>`


def read_line(line: str) -> dict[str, Any]:
    """What a line of the history says, by the names of `Found`."""
    state, type_, group, attempt, died, *rest = orjson.loads(line[SEQUENCE_DIGITS:])
    crashes, lost_leases = died if isinstance(died, list) else (died, 0)
    facts = {"state": state, "type": type_, "group": group, "attempt": attempt}
    facts |= {"crashes": crashes, "lost_leases": lost_leases, "scope": rest[-1]}
    facts["since"] = since = seconds(line[:SEQUENCE_DIGITS])
    if state == "done" and len(rest) > 1:
        came, took, daemon = rest[0]
        facts |= {"enqueued_at": seconds(came), "began_at": round(since - took, 6)}
        facts |= {"seconds": took, "daemon": daemon}
    elif state in {"superseded", "cancelled"}:
        facts |= CancelRequest.of(rest[0]).facts
    elif state == "expired":
        facts["start_by"] = seconds(rest[0])
    return facts


@dataclass(frozen=True, slots=True)
class Minute:
    """What ended of a group within a minute."""

    at: float  # its beginning, Unix seconds
    done: int = 0  # tasks
    others: int = 0  # tasks that ended otherwise
    seconds: float = 0.0  # that the last attempts took of those that are done


@dataclass(frozen=True, slots=True)
class Lately:
    """Tasks of a group that ended lately."""

    tasks: list[Ended]  # the last ones, the newest first
    since: float  # from when on the minutes are known, an hour ago at most (Unix seconds)
    minutes: list[Minute]  # those in which some ended, the oldest first


@dataclass(frozen=True, slots=True)
class _Step:
    """What a step of a walk through ended tasks has seen."""

    now: float
    looked: int  # in all steps so far
    oldest: float | None  # when the oldest of them ended; None if that is unknown
    found: list[tuple[str, dict[str, Any]]]  # ids of those that may be sought, and their lines


_Run: TypeAlias = Callable[..., Awaitable[Any]]


async def _walk(run: _Run, sought: str, kind: str = "") -> AsyncIterator[_Step]:
    """The steps through the last `KEPT` tasks of groups that ended in a partition."""
    looked, more, oldest, as_json = 0, 1, None, orjson.dumps(sought)
    while more and looked < KEPT:
        asked = (sought, as_json, looked, _LOOK_DRAINED if kind == "drained" else _LOOK, kind)
        now, more, end, *rows = await run(OperatorVerb.LATELY, *asked)
        looked, oldest = looked + more, seconds(int(end)) if end else oldest
        pairs = zip(rows[::2], rows[1::2], strict=True)
        found = [(id_.decode(), read_line(line.decode())) for id_, line in pairs]
        yield _Step(seconds(now), looked, oldest, found)


async def ended_lately(namespace: Namespace, group: str, most: int = LATELY) -> list[Ended]:
    """The last tasks of a group that ended, the newest first, so many at most.

    They are sought among the last `KEPT` of all groups of its partition. Dead letters aren't there.

    Raises:
        StoreUnavailable: its partition is away.
    """
    found: dict[str, Ended] = {}
    async for step in _walk(partial(namespace.run_at, group), group):
        _note(found, step, group)
        if len(found) >= most:
            break
    return [*found.values()][:most]


async def lately_of(namespace: Namespace, group: str, most: int = LATELY) -> Lately:
    """The same, and what ended of it within the last hour, minute by minute.

    Raises:
        StoreUnavailable: its partition is away.
    """
    found: dict[str, Ended] = {}
    async for step in _walk(partial(namespace.run_at, group), group):
        _note(found, step, group)
        begin = step.now - HOUR
        is_known = step.oldest is not None and step.oldest <= begin
        if is_known and len(found) >= most:
            break
    if step.looked >= KEPT and step.oldest is not None:
        begin = max(begin, step.oldest)
    minutes: dict[int, Minute] = {}
    for ended in reversed(found.values()):
        if ended.since >= begin:
            place = int(ended.since // 60)
            known = minutes.get(place, Minute(60.0 * place))
            is_done, took = ended.state == "done", round(known.seconds + (ended.seconds or 0.0), 6)
            done, others = known.done + is_done, known.others + (not is_done)
            minutes[place] = Minute(known.at, done, others, took)
    return Lately([*found.values()][:most], begin, [*minutes.values()])


def _note(found: dict[str, Ended], step: _Step, group: str) -> None:
    for id_, facts in step.found:
        if facts["group"] == group:
            shown = {name: facts[name] for name in Ended.__slots__ if name in facts}
            found.setdefault(id_, Ended(id_, **shown))


async def drained_lately(namespace: Namespace, *, text: str = "", limit: int = 50) -> GroupPage:
    """Groups in which nothing is left, the last one that drained first, so many at most.

    They are sought among those of the last `KEPT` tasks of groups that ended in each partition. If
    there are more than these, `total` is greater.

    Args:
        namespace: all partitions.
        text: that the group's name must contain; empty for any.
        limit: groups at most.

    Raises:
        StoreUnavailable: no partition answers.
    """

    async def look(client: StoreClient) -> tuple[_Step, list[GroupRow]]:
        found: dict[str, GroupRow] = {}
        async for step in _walk(client.run, text, "drained"):
            for _, facts in step.found:
                name, known = facts["group"], {name: facts[name] for name in ("type", "since")}
                if text in name:
                    found.setdefault(name, GroupRow(name, "drained", 0, **known))
            if len(found) > limit:
                break
        return step, [*found.values()]

    answers = await namespace.ask_all(look)
    rows = [row for _, found in answers.all for row in found]
    rows.sort(key=lambda row: (-(row.since or 0.0), row.group))
    return GroupPage(
        at=max(step.now for step, _ in answers.all),
        total=len(rows),
        looked_at=sum(step.looked for step, _ in answers.all),
        next=None,
        groups=rows[:limit],
        away=answers.away,
    )


@dataclass(slots=True)
class _Latest:
    """The latest tasks of a partition that ended so and match, so many at most."""

    state: ListedState
    wanted: TaskFilter
    most: int
    till: int | None  # by when they ended (µs), None for any
    rows: list[TaskRow] = field(default_factory=list)
    oldest: float | None = None  # when the last of so many ended; those before it aren't wanted
    looked: int = 0  # tasks of the history that were looked at
    is_whole: bool = True  # whether that were all
    at: float = 0.0  # Unix seconds by Redis's clock

    async def look(self, client: StoreClient) -> _Latest:
        """Look at the history; where that is too long, at the last of groups that ended."""
        place = ""
        while self.looked < LOOKED_AT:
            page = await look_at_tasks(client, self.state, _STEP, place, self._asked())
            self._add(page.tasks, page.at)
            self.at, self.looked, place = page.at, self.looked + page.looked_at, page.next
            # What the older segment has ended before all that is in the newer one.
            if not place or place.startswith(_OLDER):
                is_full = self._cut()
                if is_full or not place:
                    return self
        self.is_whole = False
        async for step in _walk(client.run, "", "any"):
            rows = [
                TaskRow(id_, e["type"], e["group"], None, e["attempt"], None, e["since"])
                for id_, e in step.found
                if e["state"] == self.state
            ]
            self._add(rows, step.now)
            if self._cut() and step.oldest is not None and step.oldest < (self.oldest or 0.0):
                break
        return self

    def _asked(self) -> bytes:
        """What a script is to answer, as `list.lua` has it."""
        asked = {name: getattr(self.wanted, name) for name in ("id", "type", "group")}
        asked |= {"older": microseconds(self.wanted.older), "most": self.most}
        if self.till is not None:
            asked["till"] = f"{self.till:016}"
        if self.oldest is not None:
            asked["from"] = f"{microseconds(self.oldest):016}"
        return orjson.dumps({name: fact for name, fact in asked.items() if fact})

    def _add(self, rows: Iterable[TaskRow], now: float) -> None:
        for row in rows:
            is_early = self.till is None or microseconds(_ended(row)) <= self.till
            if is_early and self.wanted.passes(row, now):
                self.rows.append(row)
        if len(self.rows) > 2 * self.most:
            self._cut()

    def _cut(self) -> bool:
        """Keep the latest, each once. Returns whether there are as many as may be."""
        found: dict[str, TaskRow] = {}
        for row in sorted(self.rows, key=_by_end):
            found.setdefault(row.id, row)
        self.rows = [*found.values()][: self.most]
        is_full = len(self.rows) == self.most
        self.oldest = _ended(self.rows[-1]) if is_full else None
        return is_full


def _ended(row: TaskRow) -> float:
    return row.since or 0.0


def _by_end(row: TaskRow) -> tuple[float, str]:
    return -_ended(row), row.id


async def list_ended(
    namespace: Namespace,
    state: ListedState,
    wanted: TaskFilter = EVERY,
    *,
    cursor: str = "0",
    limit: int = 100,
) -> TaskList:
    """Tasks that ended so, the latest to end first, `limit` of them at most.

    Of a history with more than `LOOKED_AT` tasks, the list has the latest of groups' last `KEPT`
    and of those looked at: it isn't whole, since of plain tasks some may be missing.

    Raises:
        StoreUnavailable: no partition answers.
        UnknownCursor: the cursor isn't valid here.
    """
    till, passed = _parse(cursor)
    most = passed + limit + 1
    if wanted.tenant:  # nothing knows it of a task that is over
        return TaskList(state, [], 0, None)
    answers = await namespace.ask_all(
        lambda client: _Latest(state, wanted, most, till).look(client)
    )
    found = sorted((row for each in answers.all for row in each.rows), key=_by_end)[:most]
    rows, following = found[passed : passed + limit], None
    if len(found) == most:
        last = microseconds(_ended(rows[-1]))
        same = sum(microseconds(_ended(row)) == last for row in found[:-1])
        following = "{}.{}.{}".format(*divmod(last, MICROSECONDS), same)
    return TaskList(
        state,
        rows,
        sum(each.looked for each in answers.all),
        following,
        answers.away,
        all(each.is_whole for each in answers.all),
        max(each.at for each in answers.all),
    )


def _parse(cursor: str) -> tuple[int | None, int]:
    """By when (µs) the tasks of a page ended, and how many of these the pages before have."""
    if cursor == "0":
        return None, 0
    match cursor.split("."):
        case [whole, part, passed] if (whole + part + passed).isdecimal():
            return int(whole) * MICROSECONDS + int(part), int(passed)
    raise UnknownCursor("of another list")
