"""Tasks: find one and what happened to it; list those of a state; drop one, or run it now."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.operate.groups import lost_reason, quiet_reason
from groupflow.operate.replies import named
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds
from groupflow.store.envelope import Envelope
from groupflow.store.keys import ARRIVAL_DIGITS
from groupflow.store.life import Life
from groupflow.store.settlements import history_line

TaskState: TypeAlias = Literal[
    "queued", "running", "delayed", "dead", "done", "superseded", "dropped", "expired"
]
OVER: frozenset[TaskState] = frozenset({"done", "superseded", "dropped", "expired"})
ListedState: TypeAlias = Literal["queued", "running", "delayed", "done", "superseded"]
Left: TypeAlias = Literal["running", "dead", "over", "due", "unknown"]
"""Why a task was left as it is; ``due``: it only waits for its turn."""

REASONS: dict[Left, str] = {
    "running": "it runs: a task that runs is left alone",
    "dead": "it is a dead letter: redrive or drop it as one",
    "over": "it is over",
    "due": "it isn't delayed: it waits for its turn",
    "unknown": "nothing is known of it",
}

_UNKNOWN = dict.fromkeys(("group", "tenant", "enqueued_at"))
LOOKED_AT = 2000  # places in a line a script: bounds how long one may block Redis


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a task."""

    id: str
    # a dead letter that was dropped or outlived its retention has that state as long as the
    # history lasts
    state: TaskState
    type: str
    group: str | None = None  # its group, None for a plain task
    tenant: str | None = None  # its tenant, if still known
    scope: str | None = None  # a digest of the application and tenant that own its id
    attempt: int = 1  # the attempt that runs or is next; of a finished task, the one that ended it
    crashes: int = 0  # how many claims of it ended with the death of their daemon
    lost_leases: int = 0  # and how many with a lost lease, without a known death
    stage: str | None = None  # the stage that it has reached
    daemon: str | None = None  # the one that runs it; this, `worker` and `fence` only if it runs
    worker: str | None = None  # within the daemon
    fence: int | None = None
    since: float | None = None  # Unix seconds since when it runs, is dead or is over
    until: float | None = None  # Unix seconds until when it is delayed
    reason: str | None = None
    superseded_by: str | None = None  # the newer task that replaced it
    # one entry for each failed attempt that is remembered, oldest first
    errors: list[dict[str, Any]] = field(default_factory=list)


async def read_envelope(client: StoreClient, id_: str) -> Envelope | None:
    """The headers and the body of a task that waits or runs, or ``None``: it is over.

    For a dead letter see `DeadLetters.envelope`, which knows where its body lies.
    """
    packed, row = await client.run(OperatorVerb.ENVELOPE, id_, "")
    return Envelope.unpack_any(packed, named(row).get("group")) if packed else None


async def find_task(client: StoreClient, id_: str) -> Found | None:
    """Find a task by its id, or ``None``: it never was, or isn't in the history any more."""
    facts = named(await client.run(OperatorVerb.FIND, id_))
    if "type" not in facts:
        return _ended(id_, facts["ended"]) if "ended" in facts else None
    life = Life.of(facts["life"])
    found = partial(
        Found,
        id=id_,
        type=facts["type"],
        group=facts.get("group"),
        tenant=facts.get("tenant"),
        scope=facts.get("scope"),
        attempt=life.attempt,
        crashes=life.deaths,
        lost_leases=life.lost_leases,
        stage=life.stage,
        errors=life.errors,
    )
    if "died" in facts:
        return found(state="dead", since=seconds(facts["died"]), reason=life.reason)
    if "daemon" in facts:
        where = {name: facts[name] for name in ("daemon", "worker")}
        return found(
            state="running", fence=int(facts["fence"]), since=seconds(facts["since"]), **where
        )
    if life.due is not None and life.due > facts["now"]:
        reason = quiet_reason(life) or lost_reason(life) or None
        return found(state="delayed", until=seconds(life.due), reason=reason)
    return found(state="queued")


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
    """Some tasks of a state."""

    at: float  # Unix seconds by Redis's clock
    rows: list[TaskRow]
    turns: list[int]  # for each row the number by which rows of several stores are sorted
    next: tuple[int, str, int] | None  # where the next page begins, None at the end


BEGINNING = (1, "0", 0)


async def list_tasks(client: StoreClient, state: ListedState, limit: int) -> list[TaskRow]:
    """Some tasks of a state, `limit` of them at most.

    Of waiting tasks the next to run comes first; groups that run, wait or stand follow. Of running
    ones the longest comes first. For counts see `read_totals`, for the dead `DeadLetters`.
    """
    return (await look_at_tasks(client, state, limit)).rows[:limit]


async def look_at_tasks(
    client: StoreClient,
    state: ListedState,
    limit: int,
    begin: tuple[int, str, int] = BEGINNING,
) -> TaskPage:
    """A page of them; of finished tasks it may have more than `limit`, or none and yet a next."""
    reply = named(await client.run(OperatorVerb.LIST, state, limit, *begin), "at")
    rows, turns = [], []
    for packed in reply["tasks"]:
        facts = named(packed, "enqueued_at", "since", "until")
        turns.append(int(facts.pop("turn")))
        facts["attempt"] = int(facts["attempt"])
        rows.append(TaskRow(**{**_UNKNOWN, **facts}))
    following = (reply["part"], reply["place"], reply["deep"]) if "part" in reply else None
    return TaskPage(reply["at"], rows, turns, following)


def _ended(id_: str, line: str) -> Found:
    state, type_, group, attempt, died, *rest = orjson.loads(line[ARRIVAL_DIGITS:])
    crashes, lost_leases = died if isinstance(died, list) else (died, 0)
    superseded_by = rest.pop(0) if state == "superseded" else None
    return Found(
        id_,
        state,
        type_,
        group,
        attempt=attempt,
        crashes=crashes,
        lost_leases=lost_leases,
        since=seconds(line[:ARRIVAL_DIGITS]),
        scope=rest[0],
        superseded_by=superseded_by,
    )


class WaitingTasks:
    """The waiting tasks of one store. Each call may be made again."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def drop(self, id_: str) -> Left | None:
        """Remove a task that waits, or is delayed, for good. Its group goes on.

        Returns:
            ``None`` if it is dropped, else why it was left.

        Raises:
            StoreUnavailable: no answer; it may be dropped.
        """
        found = await find_task(self._client, id_)
        left = _left(found)
        if found is None or left is not None:
            return left
        line = history_line(
            "dropped",
            found.type,
            found.group,
            found.attempt,
            found.crashes,
            lost_leases=found.lost_leases,
        )
        place = 0
        while place >= 0:
            dropped, place = await self._client.run(
                OperatorVerb.DROP_WAITING, id_, found.group or "", line, place, LOOKED_AT
            )
            if dropped:
                return None
        # It was claimed, or ended, since: say which.
        return _left(await find_task(self._client, id_)) or "running"

    async def run_now(self, id_: str) -> Left | None:
        """Make a delayed task due.

        Returns:
            ``None`` if it is due from now on, else why it was left.

        Raises:
            StoreUnavailable: no answer; it may be due.
        """
        found = await find_task(self._client, id_)
        left = _left(found)
        if found is None or left is not None:
            return left
        if await self._client.run(OperatorVerb.RUN_NOW, id_, found.group or ""):
            return None
        return "due"

    async def delayed_of(self, group: str) -> list[str]:
        """The delayed tasks of a group, by bounded looks; one that moves may be missed."""
        held: list[str] = []
        aside: list[str] = []
        for place, ids in (("lane", held), ("aside", aside)):
            passed, looked = 0, LOOKED_AT
            while looked == LOOKED_AT:
                looked, found = await self._client.run(
                    OperatorVerb.DELAYED_OF, group, place, passed, LOOKED_AT
                )
                passed += looked
                ids += [id_.decode() for id_ in found]
        return [*reversed(held), *aside]  # the next to run first


def _left(found: Found | None) -> Left | None:
    """Why a task can't be dropped or run now, by its state; ``None`` if it can."""
    if found is None:
        return "unknown"
    match found.state:
        case "running" | "dead":
            return found.state
        case "queued" | "delayed":
            return None
        case _:
            return "over"
