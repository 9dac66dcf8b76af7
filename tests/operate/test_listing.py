"""Pages of groups, lanes and dead letters: whole, in order, by a bounded look."""

from __future__ import annotations

from typing import Any

import orjson

from groupflow.operate import listing
from groupflow.operate.dead import DeadLetters, Filter
from groupflow.operate.groups import Groups
from groupflow.operate.listing import ListedGroups, list_groups
from groupflow.operate.namespace import Namespace
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import Retry
from tests.store.bench import Bench, arrival, bury

STRANGE = 'a/b?c=d&e#f "<script>alert(1)</script>" \N{SNOWMAN} %2F'


def of_tenant(id_: str, group: str, tenant: str, **headers: Any) -> Arrival:
    return Arrival(id_, Envelope("t", group, tenant, "rule", headers, b'{"body": 1}'))


async def _all(bench: Bench, state: ListedGroups, **how: Any) -> list[str]:
    """Every group of a state, page by page."""
    found: list[str] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = await list_groups(Namespace([bench.client]), state, cursor=cursor, **how)
        found += [row.group for row in page.groups]
        cursor = page.next
    return found


async def test_pages_are_whole_and_in_turn(bench: Bench) -> None:
    names = [f"g{n:02}" for n in range(23)]
    await bench.enqueue(*(arrival(f"t-{name}", name) for name in names))
    assert await _all(bench, "ready", limit=5) == names
    page = await list_groups(Namespace([bench.client]), "ready", limit=5)
    assert (page.total, page.looked_at, page.next) == (23, 5, "5")
    (row, *_) = page.groups
    assert (row.group, row.waiting, row.head, row.type, row.tenant) == (
        "g00",
        1,
        "t-g00",
        "t",
        "42",
    )


async def test_filters(bench: Bench) -> None:
    await bench.enqueue(
        *(of_tenant(f"{n}", f"contact:{n}", "acme" if n % 3 else "other") for n in range(30)),
        of_tenant("x", STRANGE, "t/1"),
        of_tenant("many", "with-headers", "acme", note="h" * 9000),
    )
    assert await _all(bench, "ready", text="contact:1", limit=4) == [
        "contact:1",
        *(f"contact:{n}" for n in range(10, 20)),
    ]
    assert len(await _all(bench, "ready", tenant="acme", limit=7)) == 21
    assert await _all(bench, "ready", text="<script>") == [STRANGE]
    assert await _all(bench, "ready", tenant="nobody") == []
    assert await _all(bench, "ready", text="[%d") == [], "text is text, not a pattern"


async def test_a_filter_looks_at_so_many_and_no_more(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(listing, "_LOOK", 4)
    monkeypatch.setattr(listing, "_LOOKS", 2)
    await bench.enqueue(*(arrival(f"{n}", f"g{n:02}") for n in range(20)))
    page = await list_groups(Namespace([bench.client]), "ready", text="g19")
    assert (page.groups, page.looked_at, page.next) == ([], 8, "8")
    assert await _all(bench, "ready", text="g19") == ["g19"]


async def test_every_state(bench: Bench) -> None:
    await bench.enqueue(
        arrival("r0", "run"), arrival("r1", "run"), arrival("d0", "die"), arrival("d1", "die")
    )
    daemon = await bench.daemon()
    running, dying = await daemon.claim("grouped", "w1", "w2")
    await daemon.settle(bury(dying, park=True))
    await bench.enqueue(arrival("h0", "hold", delay=600.0), arrival("p0", "stop"))
    await Groups(bench.namespace).pause("stop", "me")
    (row,) = (await list_groups(Namespace([bench.client]), "running")).groups
    assert (row.group, row.by, row.waiting, row.head) == ("run", "d1, w1", 1, "r0")
    assert row.since is not None
    (row,) = (await list_groups(Namespace([bench.client]), "parked")).groups
    assert (row.group, row.by, row.waiting, row.head) == ("die", "d0", 1, "d1")
    (row,) = (await list_groups(Namespace([bench.client]), "paused")).groups
    assert (row.group, row.by, row.head) == ("stop", "me", "p0")
    page = await list_groups(Namespace([bench.client]), "delayed")
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


async def test_dead_letters_by_page(bench: Bench) -> None:
    for n in range(7):
        body = b"{" + b" " * (100_000 if n == 0 else 50_000) + b"}"
        reason = "no type" if n % 2 else "too old"
        envelope = Envelope("t", None, "42", None, {"h": "x" * (5000 * (n == 3))}, body)
        await bench.enqueue(Arrival(f"d{n}", envelope, dead=reason))
    letters = DeadLetters(bench.namespace)
    page = await letters.page(Filter(), limit=3)
    assert [letter.id for letter in page.letters] == ["d6", "d5", "d4"]
    assert page.next == 3
    page = await letters.page(Filter(), passed=3, limit=50)
    assert ([letter.id for letter in page.letters], page.next) == (["d3", "d2", "d1", "d0"], None)
    for type_, found in (
        ("t", 7),
        ("*", 7),
        ("t*", 7),
        ("T*", 0),
        ("t.*", 0),
        ("*t", 0),
        ("tt", 0),
    ):
        assert len((await letters.page(Filter(type=type_))).letters) == found, type_
    page = await letters.page(Filter(reason="no t"), limit=2)
    assert ([letter.id for letter in page.letters], page.looked_at) == (["d5", "d3"], 4)
    assert page.letters[1].type == "t"
    page = await letters.page(Filter(), passed=6, limit=1)
    assert (page.letters[0].type, page.letters[0].tenant) == ("t", "42"), "however large it is"
    packed: Any = bench.raw.hget(bench.keys("tasks"), "d3")
    assert len(orjson.loads(packed.partition(b"\n")[0])[4]["h"]) == 5000
