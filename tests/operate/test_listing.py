"""Pages of groups, lanes and tasks: whole, in order, by each filter, by a bounded look."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.operate import listing
from groupflow.operate.groups import Groups
from groupflow.operate.listing import (
    ListedGroups,
    TaskFilter,
    list_groups,
    list_tasks,
    search_tasks,
)
from groupflow.operate.namespace import Namespace
from groupflow.operate.pages import UnknownCursor
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import Retry
from tests.operate.spread import Spread
from tests.store.bench import Bench, arrival, bury

STRANGE = 'a/b?c=d&e#f "<script>alert(1)</script>" \N{SNOWMAN} %2F'


def of_tenant(id_: str, group: str, tenant: str, **headers: Any) -> Arrival:
    return Arrival(id_, Envelope("t", group, tenant, "rule", headers, b'{"body": 1}'))


async def pages_of(namespace: Namespace, state: ListedGroups, **how: Any) -> list[str]:
    """Every group of a state, page by page."""
    found: list[str] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = await list_groups(namespace, state, cursor=cursor, **how)
        found += [row.group for row in page.groups]
        cursor = page.next
    return found


async def test_pages_of_groups_are_whole_and_in_turn(spread: Spread, monkeypatch: Any) -> None:
    names = await spread.fill()
    assert await pages_of(spread.namespace, "ready", limit=7) == names
    page = await list_groups(spread.namespace, "ready", limit=7)
    first = page.groups[0]
    assert (page.total, first.waiting, first.head, first.type) == (40, 2, "g00-1", "t")
    monkeypatch.setattr(listing, "_LOOK", 3)
    monkeypatch.setattr(listing, "_LOOKS", 1)
    nines = [name for name in names if "9" in name]
    assert await pages_of(spread.namespace, "ready", limit=4, text="9") == nines
    for name in names[:25]:
        await Groups(spread.namespace).pause(name, "me")
    assert sorted(await pages_of(spread.namespace, "paused", limit=5)) == names[:25]
    assert await pages_of(spread.namespace, "ready", limit=5) == names[25:]
    without = spread.without(2)
    there = [name for name in names[25:] if spread.place_of(name) != 2]
    assert await pages_of(without, "ready", limit=7) == there
    page = await list_groups(without, "ready", limit=7)
    assert [each.partition for each in page.away] == [2]
    for daemon in await spread.daemons():
        await daemon.claim("grouped", "w1")
    assert len(await pages_of(spread.namespace, "running", limit=1)) == 4
    with pytest.raises(UnknownCursor, match="another number of partitions"):
        await list_groups(spread.namespace, "ready", cursor="1-2")


async def test_delayed_groups_come_by_when_they_are_due(spread: Spread) -> None:
    delays = {f"g{n}": 600.0 + (n * 7) % 30 for n in range(30)}
    await spread.enqueue(*(arrival(name, name, delay=delays[name]) for name in delays))
    assert await pages_of(spread.namespace, "delayed", limit=4) == sorted(
        delays, key=lambda name: delays[name]
    )
    rows = (await list_tasks(spread.namespace, "delayed", 10)).rows
    assert [row.id for row in rows] == sorted(delays, key=lambda name: delays[name])[:10]
    assert [row.group for row in rows] == [row.id for row in rows]


async def test_filters(bench: Bench, monkeypatch: Any) -> None:
    await bench.enqueue(
        *(of_tenant(f"{n}", f"contact:{n}", "acme" if n % 3 else "other") for n in range(30)),
        of_tenant("x", STRANGE, "t/1"),
        of_tenant("many", "with-headers", "acme", note="h" * 9000),
    )
    assert await pages_of(bench.namespace, "ready", text="contact:1", limit=4) == [
        "contact:1",
        *(f"contact:{n}" for n in range(10, 20)),
    ]
    assert len(await pages_of(bench.namespace, "ready", tenant="acme", limit=7)) == 21
    assert await pages_of(bench.namespace, "ready", text="<script>") == [STRANGE]
    assert await pages_of(bench.namespace, "ready", tenant="nobody") == []
    assert await pages_of(bench.namespace, "ready", text="[%d") == [], "text is text, not a pattern"
    monkeypatch.setattr(listing, "_LOOK", 4)
    monkeypatch.setattr(listing, "_LOOKS", 2)
    page = await list_groups(bench.namespace, "ready", text="contact:19")
    assert (page.groups, page.looked_at, page.next) == ([], 8, "8"), "so many and no more"


async def test_every_state_and_a_lane(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"{group}{n}", group) for group in ("run", "die") for n in "01"))
    daemon = await bench.daemon()
    running, dying = await daemon.claim("grouped", "w1", "w2")
    await daemon.settle(bury(dying, park=True))
    await bench.enqueue(arrival("hold0", "hold", delay=600.0), arrival("stop0", "stop"))
    await Groups(bench.namespace).pause("stop", "me")
    for state, told in (
        ("running", ("run", "d1, w1", 1, "run0")),
        ("parked", ("die", "die0", 1, "die1")),
        ("paused", ("stop", "me", 1, "stop0")),
        ("delayed", ("hold", None, 1, "hold0")),
    ):
        page = await list_groups(bench.namespace, state)  # type: ignore[arg-type]
        (row,) = page.groups
        assert (row.group, row.by, row.waiting, row.head) == told
        assert (row.since is not None) == (state != "delayed")
        assert ((row.until or 0.0) > page.at + 500) == (state == "delayed")
    error = {"attempt": 1, "error": "ValueError", "message": "no such row"}
    await daemon.settle(Retry(running, 600.0, [error]))
    groups = Groups(bench.namespace)
    lane = await groups.lane("run", limit=1)
    (head,) = lane.tasks
    assert (lane.total, head.id, head.attempt, head.errors) == (2, "run0", 2, [error])
    assert (head.due or 0.0) > lane.at
    assert [task.id for task in (await groups.lane("run", passed=1)).tasks] == ["run1"]
    assert (await groups.lane("run", passed=50)).tasks == []
    assert (await groups.lane("nobody")).total == 0


def work(id_: str, group: str | None, type_: str, tenant: str = "7") -> Arrival:
    return Arrival(id_, Envelope(type_, group, tenant, "rule", {}, b"{}"))


async def every_task(bench: Bench, wanted: TaskFilter, limit: int) -> list[str]:
    """All that match, page by page."""
    found: list[str] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = await search_tasks(bench.namespace, "queued", wanted, cursor=cursor, limit=limit)
        found += [row.id for row in page.tasks]
        cursor = page.next
    return found


async def test_each_filter_of_tasks(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(listing, "CHUNK", 3)
    monkeypatch.setattr(listing, "LOOKS", 2)
    await bench.enqueue(
        *(work(f"p{n}", None, "import.a" if n % 2 else "mail") for n in range(10)),
        *(work(f"g{n}", f"contact:{n % 3}", "import.b", str(n)) for n in range(9)),
    )
    everything = {*(f"p{n}" for n in range(10)), *(f"g{n}" for n in range(9))}
    for wanted, ids in (
        (TaskFilter(), everything),
        (TaskFilter(id="p1"), {"p1"}),
        (TaskFilter(type="mail"), {f"p{n}" for n in range(0, 10, 2)}),
        (TaskFilter(type="import.*"), everything - {f"p{n}" for n in range(0, 10, 2)}),
        (TaskFilter(tenant="8"), {"g8"}),
        (TaskFilter(group="contact:1"), {"g1", "g4", "g7"}),
        (TaskFilter(type="mail", tenant="8"), set()),
        (TaskFilter(older=3600.0), set()),
        (TaskFilter(older=0.000001), everything),
    ):
        found = await every_task(bench, wanted, 4)
        assert sorted(found) == sorted(ids), wanted
    page = await search_tasks(bench.namespace, "queued", TaskFilter(id="p9"))
    assert (page.tasks, page.looked_at, page.next is None) == ([], 6, False), "a bounded look"
    for cursor in ("7.1.0.0", "1.2", "a.b.c.d"):
        with pytest.raises(UnknownCursor, match="cursor"):
            await search_tasks(bench.namespace, "queued", TaskFilter(), cursor=cursor)
