"""Tenants of a whole namespace: each lies in as many partitions as its groups do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from groupflow.core.errors import StoreUnavailable
from groupflow.operate import tenants as one
from groupflow.operate.away import Away
from groupflow.operate.tenants import TenantRow
from groupflow.operate.whole.namespace import Namespace


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
        ValueError: the cursor isn't valid here.
    """
    partition, place = _place(cursor, len(namespace))
    question = {
        partition: lambda client: one.find_tenants(client, begin=place, limit=limit, name=name)
    }
    try:
        answers = await namespace.ask_each(question)
        names = answers.by_partition[partition]
    except StoreUnavailable:
        if partition + 1 == len(namespace):
            raise
        names = one.TenantNames([], 0, None)
    parts = await namespace.ask_all(lambda client: one.read_tenants(client, names.tenants))
    rows = []
    for number in range(len(names.tenants)):
        known = {n: found[number] for n, (_, found) in parts.by_partition.items()}
        held = [(n, row) for n, row in known.items() if row is not None]
        if held and held[0][0] >= partition:  # else an earlier partition's page had it
            rows.append(_sum([row for _, row in held], len(namespace)))
    following = names.next if names.next is not None else 0
    behind = partition if names.next is not None else partition + 1
    return TenantPage(
        at=max(at for at, _ in parts.all),
        looked_at=names.looked_at,
        next=f"{following}-{behind}" if behind < len(namespace) else None,
        tenants=rows,
        away=parts.away,
    )


def _place(cursor: str, count: int) -> tuple[int, int]:
    """The partition in which a page begins, and the place there."""
    if cursor == "0":
        return 0, 0
    place, _, partition = cursor.partition("-")
    if not (place.isdecimal() and partition.isdecimal() and int(partition) < count):
        raise ValueError("this cursor is of another list")
    return int(partition), int(place)


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
