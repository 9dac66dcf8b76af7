"""Pages of groups by state, and of what waits in one group; each costs the same in any backlog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import orjson

from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import MICROSECONDS
from groupflow.store.keys import split_checkpoint, split_element

ListedGroups: TypeAlias = Literal["ready", "running", "delayed", "parked", "paused"]

_LOOK = 300  # groups a script: bounds how long one may block Redis
_LOOKS = 10  # scripts a page: bounds how long a filter is tried


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list.

    Attributes:
        group: which.
        state: the state that the list is of.
        waiting: tasks in its lane.
        head: the id of the task that runs, or is next; ``None`` where there is none.
        type: that task's type.
        tenant: that task's tenant.
        enqueued_at: when that task came, Unix seconds.
        since: Unix seconds since when it runs, is parked or is paused.
        until: Unix seconds until when it is delayed.
        by: who runs it or paused it, or the dead letter that parked it.
    """

    group: str
    state: ListedGroups
    waiting: int
    head: str | None = None
    type: str | None = None
    tenant: str | None = None
    enqueued_at: float | None = None
    since: float | None = None
    until: float | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some groups of a state.

    Attributes:
        at: Unix seconds by Redis's clock.
        total: groups in that state.
        looked_at: how many of them were tried against the filter for this page.
        next: cursor of the next page, ``None`` at the end.
        groups: those that passed, the next in turn first where there is an order.
    """

    at: float
    total: int
    looked_at: int
    next: str | None
    groups: list[GroupRow]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that waits in a group.

    Attributes:
        id: the task.
        type: its type.
        tenant: its tenant.
        enqueued_at: when it came, Unix seconds.
        attempt: the attempt that is next.
        crashes: claims of it that ended in a crash.
        stage: the stage that it has reached.
        due: Unix seconds before which it may not run, if it has to wait.
        errors: one entry for each failed attempt that is remembered, oldest first.
    """

    id: str
    type: str
    tenant: str | None
    enqueued_at: float
    attempt: int = 1
    crashes: int = 0
    stage: str | None = None
    due: float | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lane:
    """A part of what waits in a group: how many in all, and some, the next to run first."""

    at: float
    total: int
    tasks: list[Waiting]


async def list_groups(
    client: StoreClient,
    state: ListedGroups,
    *,
    cursor: str = "0",
    limit: int = 50,
    text: str = "",
    tenant: str = "",
) -> GroupPage:
    """A page of the groups in a state.

    A filter is tried on so many groups and no more, so a page may have fewer than `limit`, or none,
    and yet have a next one.

    Args:
        client: the store.
        state: which.
        cursor: ``0``, or what the page before gave.
        limit: groups at most; of the parked and paused, those of one step more.
        text: what the group's name must have in it; empty for any.
        tenant: whose task must be its head; empty for anybody's.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    found: list[GroupRow] = []
    at, total, looked = 0.0, 0, 0
    following = cursor
    for _ in range(_LOOKS):
        wanted = limit - len(found)
        now, next_, total, seen, rows = await client.run(
            OperatorVerb.GROUPS, state, following, _LOOK, wanted, text, tenant
        )
        at, looked, following = now / MICROSECONDS, looked + seen, next_.decode()
        found += [_group_row(state, *row) for row in rows]
        if not following or len(found) >= limit:
            break
    return GroupPage(at, total, looked, following or None, found)


async def list_lane(client: StoreClient, group: str, *, passed: int = 0, limit: int = 50) -> Lane:
    """What waits in a group, the next to run first.

    Args:
        client: the store.
        group: which.
        passed: how many tasks to pass over.
        limit: how many at most.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    now, total, rows = await client.run(OperatorVerb.LANE, group, passed, limit)
    return Lane(now / MICROSECONDS, total, [_waiting(*row) for row in rows])


def _group_row(  # noqa: PLR0917  the row that groups.lua answers, in its order
    state: ListedGroups,
    group: bytes,
    note: bytes,
    waiting: int,
    head: bytes,
    type_: bytes,
    tenant: bytes,
    daemon: bytes,
    worker: bytes,
) -> GroupRow:
    told: dict[str, Any] = {}
    if head:
        arrival, told["head"] = split_element(head)
        told["enqueued_at"] = arrival / MICROSECONDS
        told["type"], told["tenant"] = type_.decode() or None, tenant.decode() or None
    match state:
        case "delayed":
            told["until"] = float(note) / MICROSECONDS
        case "running":
            told["since"] = split_checkpoint(note)[1] / MICROSECONDS
            told["by"] = f"{daemon.decode()}, {worker.decode()}"
        case "parked" | "paused":
            told["by"], since, *_ = orjson.loads(note)
            told["since"] = int(since) / MICROSECONDS
    return GroupRow(group.decode(), state, waiting, **told)


def _waiting(element: bytes, type_: bytes, tenant: bytes, life: Sequence[bytes | None]) -> Waiting:
    arrival, id_ = split_element(element)
    attempt, crashes, stage, due, errors = life
    return Waiting(
        id=id_,
        type=type_.decode(),
        tenant=tenant.decode() or None,
        enqueued_at=arrival / MICROSECONDS,
        attempt=int(attempt or 1),
        crashes=int(crashes or 0),
        stage=stage.decode() if stage is not None else None,
        due=int(due) / MICROSECONDS if due else None,
        errors=orjson.loads(errors or b"[]"),
    )
