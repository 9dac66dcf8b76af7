"""Pages of groups, lanes and dead letters: whole, in order, by a bounded look."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.operate import listing
from groupflow.operate.groups import Groups
from groupflow.operate.listing import ListedGroups, list_groups, list_tasks
from groupflow.operate.namespace import Namespace
from groupflow.operate.totals import read_totals
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
    assert (page.total, [row.group for row in page.groups]) == (40, names[:7])
    first = page.groups[0]
    assert (first.waiting, first.head, first.type, first.tenant) == (2, "g00-1", "t", "42")
    monkeypatch.setattr(listing, "_LOOK", 3)
    monkeypatch.setattr(listing, "_LOOKS", 1)
    assert await pages_of(spread.namespace, "ready", limit=4, text="9") == [
        name for name in names if "9" in name
    ]
    groups = Groups(spread.namespace)
    for name in names[:25]:
        await groups.pause(name, "me")
    assert (await read_totals(spread.namespace)).paused == 25
    paused = await pages_of(spread.namespace, "paused", limit=5)
    assert sorted(paused) == names[:25]
    assert await pages_of(spread.namespace, "ready", limit=5) == names[25:]
    for daemon in await spread.daemons():
        await daemon.claim("grouped", "w1")
    assert len(await pages_of(spread.namespace, "running", limit=1)) == 4
    with pytest.raises(ValueError, match="another number of partitions"):
        await list_groups(spread.namespace, "ready", cursor="1-2")


async def test_pages_without_a_partition_end(spread: Spread) -> None:
    names = await spread.fill()
    there = [name for name in names if spread.place_of(name) != 2]
    namespace = spread.without(2)
    assert await pages_of(namespace, "ready", limit=7) == there
    page = await list_groups(namespace, "ready", limit=7)
    assert [each.partition for each in page.away] == [2]
    for name in there:
        await Groups(namespace).pause(name, "me")
    assert sorted(await pages_of(namespace, "paused", limit=7)) == there


async def test_delayed_groups_come_by_when_they_are_due(spread: Spread) -> None:
    delays = {f"g{n}": 600.0 + (n * 7) % 30 for n in range(30)}
    await spread.enqueue(*(arrival(name, name, delay=delays[name]) for name in delays))
    assert await pages_of(spread.namespace, "delayed", limit=4) == sorted(
        delays, key=lambda name: delays[name]
    )
    rows = (await list_tasks(spread.namespace, "delayed", 10)).rows
    assert [row.id for row in rows] == sorted(delays, key=lambda name: delays[name])[:10]
    assert [row.group for row in rows] == [row.id for row in rows]


async def test_filters(bench: Bench) -> None:
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


async def test_a_filter_looks_at_so_many_and_no_more(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(listing, "_LOOK", 4)
    monkeypatch.setattr(listing, "_LOOKS", 2)
    await bench.enqueue(*(arrival(f"{n}", f"g{n:02}") for n in range(20)))
    page = await list_groups(bench.namespace, "ready", text="g19")
    assert (page.groups, page.looked_at, page.next) == ([], 8, "8")
    assert await pages_of(bench.namespace, "ready", text="g19") == ["g19"]


async def test_every_state(bench: Bench) -> None:
    await bench.enqueue(
        arrival("r0", "run"), arrival("r1", "run"), arrival("d0", "die"), arrival("d1", "die")
    )
    daemon = await bench.daemon()
    running, dying = await daemon.claim("grouped", "w1", "w2")
    await daemon.settle(bury(dying, park=True))
    await bench.enqueue(arrival("h0", "hold", delay=600.0), arrival("p0", "stop"))
    await Groups(bench.namespace).pause("stop", "me")
    (row,) = (await list_groups(bench.namespace, "running")).groups
    assert (row.group, row.by, row.waiting, row.head) == ("run", "d1, w1", 1, "r0")
    assert row.since is not None
    (row,) = (await list_groups(bench.namespace, "parked")).groups
    assert (row.group, row.by, row.waiting, row.head) == ("die", "d0", 1, "d1")
    (row,) = (await list_groups(bench.namespace, "paused")).groups
    assert (row.group, row.by, row.head) == ("stop", "me", "p0")
    page = await list_groups(bench.namespace, "delayed")
    (row,) = page.groups
    assert row.until is not None
    assert row.until > page.at + 500
    await daemon.complete(running)


async def test_lane(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"t{n}", "g") for n in range(9)))
    daemon = await bench.daemon()
    first = await daemon.claim_one()
    error = {"attempt": 1, "error": "ValueError", "message": "no such row"}
    await daemon.settle(Retry(first, 600.0, [error]))
    lane = await Groups(bench.namespace).lane("g", limit=3)
    assert (lane.total, [task.id for task in lane.tasks]) == (9, ["t0", "t1", "t2"])
    head = lane.tasks[0]
    assert (head.attempt, head.errors) == (2, [error])
    assert head.due is not None
    assert head.due > lane.at
    rest = await Groups(bench.namespace).lane("g", passed=7, limit=3)
    assert [task.id for task in rest.tasks] == ["t7", "t8"]
    assert (await Groups(bench.namespace).lane("g", passed=50)).tasks == []
    assert (await Groups(bench.namespace).lane("nobody")).total == 0
