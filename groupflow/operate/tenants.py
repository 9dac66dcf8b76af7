"""Tenants of one store: which are counted apart, and what of each waits and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from groupflow.operate.replies import named
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds

_LOOK = 200  # entries a script: bounds how long one may block Redis
_LOOKS = 10  # scripts a page: bounds how long it may search for a name
_SCOPE = 8  # digits of a tenant's scope in front of its name


LimitedBy: TypeAlias = Literal["concurrency", "rate", "closed"]


@dataclass(frozen=True, slots=True)
class TenantNames:
    """Some tenants, each its scope and name."""

    tenants: list[bytes]
    looked_at: int
    next: int | None  # where the next ones begin, None at the end


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant of one application."""

    name: str  # empty for tasks without a tenant, if tenants take turns
    scope: str  # digits that tell it from another application's tenant of that name
    groups: int  # ready groups that wait for its turn
    plain: int  # plain tasks that wait for its turn
    running: int  # tasks that count for it
    concurrency: int  # how many may run at once; 0 for any
    rate: str | None  # its starts, as written
    oldest: float | None  # when its next task came, Unix seconds
    # the limit that lets nothing of it start, if something waits
    limited_by: LimitedBy | None
    until: float | None  # until when, Unix seconds; None at its concurrency
    by_hand_until: float | None  # until when its limits are by hand


async def find_tenants(
    client: StoreClient, *, begin: int = 0, limit: int = 50, name: str = ""
) -> TenantNames:
    """Some of the tenants that are counted apart, those at their limits first.

    A name is searched for among so many at most. So there may be none, and yet more to come.

    Args:
        client: the store.
        begin: 0, or `next` of the look before.
        limit: tenants at most; the last step of HSCAN may bring more.
        name: that they must have; empty for any.
    """
    found: list[bytes] = []
    looked, place = 0, str(begin)
    for _ in range(_LOOKS):
        most = _LOOK if name else max(1, limit - len(found))
        following, number, tenants = await client.run(OperatorVerb.TENANTS, place, most, name)
        found += tenants
        looked, place = looked + number, following.decode()
        if not place or len(found) >= limit:
            break
    return TenantNames(found, looked, int(place) if place else None)


async def read_tenants(
    client: StoreClient, tenants: Sequence[bytes]
) -> tuple[float, list[TenantRow | None]]:
    """What waits and runs of each, and when that was; None if nothing does."""
    at, rows = await client.run(OperatorVerb.TENANT_FIGURES, *tenants)
    found = [_row(*each, at) if each[1] else None for each in zip(tenants, rows, strict=True)]
    return seconds(at), found


def _row(tenant: bytes, row: Sequence[object], at: int) -> TenantRow:
    facts = named(row, "oldest", "by_hand")
    waits = facts["groups"] + facts["plain"] > 0
    free: int | None = facts.get("free")
    limited_by: LimitedBy | None = "concurrency" if free is None else facts.get("limited_by")
    name = tenant.decode()
    return TenantRow(
        name=name[_SCOPE:],
        scope=name[:_SCOPE].strip("-"),
        groups=facts["groups"],
        plain=facts["plain"],
        running=facts["running"],
        concurrency=facts["concurrency"],
        rate=facts.get("rate"),
        oldest=facts.get("oldest"),
        limited_by=limited_by if waits else None,
        until=seconds(free) if free is not None and free > at and waits else None,
        by_hand_until=facts.get("by_hand"),
    )
