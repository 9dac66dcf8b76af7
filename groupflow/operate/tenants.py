"""Tenants: those that have a limit, or something that waits or runs, and what of each.

No key has them all, so they are counted by walking through what waits and runs. Each lies
in as many partitions as its groups do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from groupflow.core.routing import scope_of
from groupflow.operate.groups import GroupState
from groupflow.operate.namespace import Away, Namespace
from groupflow.operate.pages import UnknownCursor
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.operate.tasks import application_of
from groupflow.store.client import StoreClient
from groupflow.store.clock import seconds
from groupflow.store.keys import split_entry

LOOK = 150  # entries a script: bounds how long one may block Redis
SHOWN = 20  # groups of a tenant
OF_EACH = 2000  # entries of each list that are looked at, in a partition
_SCOPE = 8  # digits of a tenant's scope in front of its name
_NO_SCOPE = "-" * _SCOPE
_APPLICATIONS = 20  # envelopes that a page reads to learn applications
_KNOWN = 10_000  # tenants whose applications are remembered


LimitedBy: TypeAlias = Literal["concurrency", "rate", "closed"]
_Figures: TypeAlias = dict[str, Any]
_STATES: dict[bytes, GroupState] = {
    **{b"R": "running", b"H": "paused", b"P": "parked", b"E": "ready", b"D": "delayed"},
    b"L": "idle",  # it depends on the limits whether it is ready or delayed
}


@dataclass(frozen=True, slots=True)
class TenantGroup:
    """A group of a tenant, by its next task."""

    group: str
    state: GroupState
    waiting: int  # tasks in its lane
    oldest: float  # when the next of them came, or the one that runs, Unix seconds


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant of one application."""

    name: str  # empty for tasks without a tenant, if tenants take turns
    scope: str  # digits that tell it from another application's tenant of that name
    app: str | None  # its application, empty if its tasks name none; None if that isn't known
    waiting: int  # tasks that wait, delayed ones too
    groups: int  # groups in which something of that waits, by the tenant of the next task
    plain: int  # those of the tasks that have no group
    running: int  # tasks
    concurrency: int  # how many may run at once; 0 for any
    rate: str | None  # its starts, as written
    oldest: float | None  # when the oldest task that is next somewhere came, Unix seconds
    # the limit that lets nothing of it start, if something waits
    limited_by: LimitedBy | None
    until: float | None  # until when, Unix seconds; None at its concurrency
    by_hand_until: float | None  # until when its limits are by hand
    # of one that was asked for by its name some groups: those that run first, then the longest
    shown: list[TenantGroup] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TenantPage:
    """Some of the tenants, those at their limits first, then those of which most waits."""

    at: float  # Unix seconds by Redis's clock
    looked_at: int  # entries that were looked at
    is_whole: bool  # whether these were all: else there may be more tenants, and more that waits
    total: int  # tenants that were found
    next: str | None  # cursor of the next page, None at the end
    tenants: list[TenantRow]
    away: list[Away] = field(default_factory=list)  # partitions that are missing from all of this


@dataclass(slots=True)
class Seen:
    """What was seen of a tenant."""

    # by its name, the state, the tasks that wait and the arrival of the next one
    groups: dict[bytes, tuple[GroupState, int, float]] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)  # plain tasks in its line, by partition
    plain: int = 0  # others
    aside: int = 0  # delayed tasks that let their group go on
    running: int = 0
    places: set[int] = field(default_factory=set)  # partitions where something waits
    stands: bool = False  # whether nothing of it may start in some partition
    oldest: float | None = None
    example: tuple[int, str] | None = None  # the partition and the id of a task of it

    @property
    def all_plain(self) -> int:
        return self.plain + sum(self.lines.values())

    @property
    def waiting(self) -> int:
        return self.all_plain + self.aside + sum(waiting for _, waiting, _ in self.groups.values())

    def note(self, partition: int, what: bytes, waiting: int, running: int, entry: bytes) -> None:
        """Note a row of `tenants.lua`."""
        kind, arrived = what[:1], 0.0
        if entry:
            at, id_ = split_entry(entry)
            self.example, arrived = (partition, id_), seconds(at)
        if kind in _STATES:  # of a group that is in two states the first one counts
            self.groups.setdefault(what[1:], (_STATES[kind], waiting, arrived))
        elif kind in {b"l", b"s"}:
            self.lines[partition] = waiting
            self.stands |= kind == b"s"
        elif kind == b"d":
            self.aside += waiting
        else:
            self.plain += waiting
        self.running += running
        if waiting:
            self.places.add(partition)
            self.oldest = min(arrived, self.oldest or arrived)

    def some(self, stands: bool) -> list[TenantGroup]:
        """Some groups: those that run first, then the longest."""
        in_line: GroupState = "delayed" if stands else "ready"
        found = [
            TenantGroup(name.decode(), in_line if state == "idle" else state, waiting, oldest)
            for name, (state, waiting, oldest) in self.groups.items()
        ]
        found.sort(key=lambda each: (each.state != "running", -each.waiting, each.group))
        return found[:SHOWN]


@dataclass(slots=True)
class TenantCounts:
    """What was seen of all tenants."""

    looked_at: int = 0
    is_whole: bool = True
    seen: dict[bytes, Seen] = field(default_factory=dict)  # by scope and name
    limited: set[str] = field(default_factory=set)  # names that have a limit of their own
    away: list[Away] = field(default_factory=list)

    def note(self, partition: int, rows: Iterable[Sequence[Any]]) -> None:
        """Note what a step saw in a partition."""
        for tenant, what, *facts in rows:
            if what == b"n":
                self.limited.add(tenant[_SCOPE:].decode())
            else:
                self.seen.setdefault(tenant, Seen()).note(partition, what, *facts)


class Tenants:
    """The tenants of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._apps: dict[bytes, str] = {}  # by scope and name, as far as they are known

    async def count(self) -> TenantCounts:
        """Look at what waits and runs, in bounded steps.

        Raises:
            StoreUnavailable: no partition answers.
        """
        found = TenantCounts()

        async def look(client: StoreClient) -> None:
            place: tuple[Any, ...] = ("1", "0", "0")
            while place:
                step = named(await client.run(OperatorVerb.TENANTS, LOOK, OF_EACH, *place))
                found.note(client.keys.partition or 0, step["rows"])
                found.looked_at += step["looked_at"]
                found.is_whole &= not step["is_cut"]
                place = tuple(step[name] for name in ("part", "place", "passed") if name in step)

        found.away = (await self._namespace.ask_all(look)).away
        return found

    async def page(
        self, counts: TenantCounts, *, cursor: str = "0", limit: int = 50, name: str = ""
    ) -> TenantPage:
        """A page of those that were counted, each with its sums over all partitions.

        Args:
            counts: of a moment ago.
            cursor: ``0``, or `next` of the page before.
            limit: tenants at most.
            name: that they must have, in any application; empty for any.

        Raises:
            StoreUnavailable: no partition answers.
            UnknownCursor: the cursor isn't valid here.
        """
        first, _, place = cursor.partition(".")
        if first != "0":
            raise UnknownCursor("of another list")
        router = self._namespace.router
        # Those that the configuration names; empty: none.
        begin, apps = int(place or 0), ["", *(router().applications if router else ())]
        every = _named(counts, name, apps) if name else _all(counts)
        shown = every[begin : begin + limit]
        parts = await self._namespace.ask_all(lambda client: _read(client, shown))
        rows, asked = list[TenantRow](), 0
        for number, tenant in enumerate(shown):
            figures = {n: told[number] for n, (_, told) in parts.by_partition.items()}
            row = _row(tenant, counts.seen.get(tenant), figures, len(self._namespace))
            if row.waiting or row.running or tenant in counts.seen or not row.scope:
                if name and tenant in counts.seen:
                    some = counts.seen[tenant].some(row.limited_by is not None)
                    row = replace(row, shown=some)
                app, is_asked = await self._application(tenant, row, counts, apps, asked)
                rows.append(replace(row, app=app))
                asked += is_asked
        away = {each.partition: each for each in (*counts.away, *parts.away)}
        return TenantPage(
            at=max(at for at, _ in parts.all),
            looked_at=counts.looked_at,
            is_whole=counts.is_whole,
            total=len(rows) if name else len(every),
            next=f"0.{begin + limit}" if len(every) > begin + limit else None,
            tenants=rows,
            away=[away[number] for number in sorted(away)],
        )

    async def _application(
        self, tenant: bytes, row: TenantRow, counts: TenantCounts, apps: Sequence[str], asked: int
    ) -> tuple[str | None, bool]:
        """A tenant's application, of a few by a look at one of its tasks; whether it took one."""
        for app in apps:
            if scope_of(app or None, row.name or None) == row.scope:
                return app, False
        seen = counts.seen.get(tenant)
        if tenant in self._apps or asked >= _APPLICATIONS or not (seen and seen.example):
            return self._apps.get(tenant), False
        app_read = await application_of(self._namespace, *seen.example, row.name or None, row.scope)
        if app_read is not None and len(self._apps) < _KNOWN:
            self._apps[tenant] = app_read
        return app_read, True


def _all(counts: TenantCounts) -> list[bytes]:
    """All tenants, those at their limits first, then those of which most waits."""
    seen = counts.seen
    idle = counts.limited - {_name_of(tenant) for tenant in seen}
    order = sorted(seen, key=lambda each: (not seen[each].stands, -seen[each].waiting, each))
    return [*order, *(f"{_NO_SCOPE}{name}".encode() for name in sorted(idle))]


def _named(counts: TenantCounts, name: str, apps: Sequence[str]) -> list[bytes]:
    """All that have a name, also those that were not come to, of known applications."""
    found = [tenant for tenant in counts.seen if _name_of(tenant) == name]
    scopes = (scope_of(app or None, name) for app in apps)
    found += [each for scope in scopes if (each := f"{scope}{name}".encode()) not in counts.seen]
    is_idle = name in counts.limited and counts.seen.keys().isdisjoint(found)
    return [*found, f"{_NO_SCOPE}{name}".encode()] if is_idle else found


def _name_of(tenant: bytes) -> str:
    return tenant[_SCOPE:].decode()


async def _read(client: StoreClient, tenants: Sequence[bytes]) -> tuple[float, list[_Figures]]:
    """What waits for its turn and runs of each, its limits, and when that was."""
    at, rows = await client.run(OperatorVerb.TENANT_FIGURES, *tenants)
    return seconds(at), [{**named(row, "by_hand"), "at": at} for row in rows]


def _row(
    tenant: bytes, seen: Seen | None, by_partition: Mapping[int, _Figures], partitions: int
) -> TenantRow:
    """One row of a tenant's shares; it stands if it stands in all partitions where tasks wait."""
    seen, parts = seen or Seen(), [*by_partition.values()]
    groups, plain = (sum(part[what] for part in parts) for what in ("groups", "plain"))
    in_groups = sum(waiting > 0 for _, waiting, _ in seen.groups.values())
    groups, plain = max(groups, in_groups), max(plain, seen.all_plain)
    limits = [
        _limited_by(part)
        for partition, part in by_partition.items()
        if partition in seen.places or part["groups"] + part["plain"]
    ]
    waiting = max(seen.waiting, groups + plain)
    stands = bool(limits) and all(limit for limit, _ in limits)
    limited_by, until = max(limits, key=lambda each: each[1] or 0.0) if stands else (None, None)
    return TenantRow(
        name=_name_of(tenant),
        scope=tenant[:_SCOPE].decode().strip("-"),
        app=None,
        waiting=waiting,
        groups=groups,
        plain=plain,
        running=max(seen.running, sum(part["running"] for part in parts)),
        concurrency=parts[0]["concurrency"] * partitions,
        rate=parts[0].get("rate"),
        oldest=seen.oldest,
        limited_by=limited_by,
        until=until,
        by_hand_until=parts[0].get("by_hand"),
    )


def _limited_by(part: _Figures) -> tuple[LimitedBy | None, float | None]:
    """Which limit lets nothing start in a partition, and until when."""
    free: int | None = part.get("free")
    if free is None:
        return "concurrency", None
    return part.get("limited_by"), seconds(free) if free > part["at"] else None
