"""Tenants: which are counted apart, and what of each waits and runs.

Each lies in as many partitions as its groups do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from groupflow.operate.namespace import Away, Namespace
from groupflow.operate.pages import walk
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds

_LOOK = 200  # entries a script: bounds how long one may block Redis
_LOOKS = 10  # scripts a page: bounds how long it may search for a name
_SCOPE = 8  # digits of a tenant's scope in front of its name


LimitedBy: TypeAlias = Literal["concurrency", "rate", "closed"]


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


@dataclass(frozen=True, slots=True)
class TenantPage:
    """Some of the tenants that are counted apart, those at their limits first."""

    at: float  # Unix seconds by Redis's clock
    looked_at: int  # entries that were looked at for this page
    next: str | None  # cursor of the next page, None at the end
    tenants: list[TenantRow]
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


async def list_tenants(
    namespace: Namespace, *, cursor: str = "0", limit: int = 50, name: str = ""
) -> TenantPage:
    """A page of them, one partition after another; each tenant with its sums over all partitions.

    Args:
        namespace: the partitions.
        cursor: ``0``, or `next` of the page before.
        limit: tenants at most; the last step of HSCAN may bring more.
        name: that they must have; empty for any.

    Raises:
        StoreUnavailable: no partition answers.
        UnknownCursor: the cursor isn't valid here.
    """
    found: dict[bytes, int] = {}  # the partition where each was found
    looked = 0

    async def look(place: str, client: StoreClient) -> tuple[str, bool]:
        nonlocal looked
        most = _LOOK if name else max(1, limit - len(found))
        after, number, tenants = await client.run(OperatorVerb.TENANTS, place or "0", most, name)
        looked += number
        found.update((each, client.keys.partition or 0) for each in tenants if each not in found)
        return after.decode(), len(found) >= limit

    following, _ = await walk(namespace, cursor, look, _LOOKS)
    parts = await namespace.ask_all(lambda client: _read(client, [*found]))
    rows = []
    for number, partition in enumerate(found.values()):
        known = {n: told[number] for n, (_, told) in parts.by_partition.items()}
        held = [(n, row) for n, row in known.items() if row is not None]
        if held and held[0][0] >= partition:  # else it was found in an earlier partition
            rows.append(_sum([row for _, row in held], len(namespace)))
    return TenantPage(
        at=max(at for at, _ in parts.all),
        looked_at=looked,
        next=following,
        tenants=rows,
        away=parts.away,
    )


async def _read(
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


def _sum(rows: Sequence[TenantRow], partitions: int) -> TenantRow:
    """One row of a tenant's shares; it stands if it stands in all partitions where tasks wait."""
    waiting = [row for row in rows if row.groups + row.plain]
    stands = bool(waiting) and all(row.limited_by for row in waiting)
    last = max(waiting, key=lambda row: row.until or 0.0) if stands else None
    return replace(
        rows[0],
        groups=sum(row.groups for row in rows),
        plain=sum(row.plain for row in rows),
        running=sum(row.running for row in rows),
        concurrency=rows[0].concurrency * partitions,
        oldest=min((row.oldest for row in rows if row.oldest is not None), default=None),
        limited_by=last.limited_by if last else None,
        until=last.until if last else None,
    )
