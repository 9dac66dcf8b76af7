"""Pages of groups by state, and of tasks in one lane; each costs the same in any backlog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from groupflow.operate.away import Away
from groupflow.operate.pages import Slice
from groupflow.operate.replies import named
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds
from groupflow.store.life import Life

ListedGroups: TypeAlias = Literal["ready", "running", "delayed", "parked", "paused"]

_LOOK = 300  # groups a script: bounds how long one may block Redis
_LOOKS = 10  # scripts a page: bounds how long a filter may search


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


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that waits in a group."""

    id: str
    type: str
    tenant: str | None
    enqueued_at: float  # when it came, Unix seconds
    attempt: int = 1  # the next attempt
    crashes: int = 0  # claims of it that ended with the death of their daemon
    lost_leases: int = 0  # and those that ended with a lost lease, without a known death
    stage: str | None = None  # the stage that it has reached
    due: float | None = None  # Unix seconds before which it may not run, if it has to wait
    # one entry for each failed attempt that is remembered, oldest first, without its traceback
    errors: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lane:
    """Tasks that wait in a group: how many in all, and some of them, the next to run first."""

    at: float
    total: int
    tasks: list[Waiting]


@dataclass(frozen=True, slots=True)
class GroupLook:
    """What was seen of the groups of a state."""

    at: float  # Unix seconds by Redis's clock
    total: int  # groups in that state
    slice: Slice[GroupRow]


async def look_at_groups(
    client: StoreClient,
    state: ListedGroups,
    *,
    cursor: str = "0",
    limit: int = 50,
    text: str = "",
    tenant: str = "",
) -> GroupLook:
    """Some of the groups in a state, with the facts that merge several stores' pages.

    A filter is tried on so many groups at most. So there may be fewer than `limit`, or none, and
    yet more to come.

    Args:
        client: the store.
        state: which.
        cursor: ``0``, or `next` of the look before.
        limit: groups at most; of the parked and paused, those of one step more.
        text: that the group's name must contain; empty for any.
        tenant: the tenant of its head; empty for any.
    """
    found: Slice[GroupRow] = Slice()
    following = cursor
    for _ in range(_LOOKS):
        wanted = limit - len(found.rows)
        reply = await client.run(OperatorVerb.GROUPS, state, following, _LOOK, wanted, text, tenant)
        page = named(reply, "at")
        for row in page["groups"]:
            facts = named(row, "enqueued_at", "since", "until")
            place, turn = found.looked + facts.pop("place"), float(facts.pop("turn", 0))
            found.add(GroupRow(state=state, **facts), turn, place)
        found.looked, following = found.looked + page["looked_at"], page.get("next", "")
        if not following or len(found.rows) >= limit:
            break
    found.next = following or None
    return GroupLook(page["at"], page["total"], found)


async def count_groups(client: StoreClient, state: ListedGroups) -> GroupLook:
    """How many groups are in a state, and none of them.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    reply = named(await client.run(OperatorVerb.GROUPS, state, "", _LOOK, 0, "", ""), "at")
    return GroupLook(reply["at"], reply["total"], Slice())


async def list_lane(client: StoreClient, group: str, *, passed: int = 0, limit: int = 50) -> Lane:
    """The tasks that wait in a group behind the first `passed`, the next to run first."""
    reply = named(await client.run(OperatorVerb.LANE, group, passed, limit), "at")
    return Lane(reply["at"], reply["total"], [_waiting(row) for row in reply["tasks"]])


def _without_traceback(error: dict[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in error.items() if name != "traceback"}


def _waiting(row: Sequence[Any]) -> Waiting:
    facts = named(row, "enqueued_at")
    life = Life.of(facts["life"])
    return Waiting(
        id=facts["id"],
        type=facts["type"],
        tenant=facts.get("tenant"),
        enqueued_at=facts["enqueued_at"],
        attempt=life.attempt,
        crashes=life.deaths,
        lost_leases=life.lost_leases,
        stage=life.stage,
        due=None if life.due is None else seconds(life.due),
        errors=[_without_traceback(error) for error in life.errors],
    )
