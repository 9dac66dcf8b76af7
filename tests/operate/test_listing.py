"""Pages of groups, lanes and tasks: whole, in order, by each filter, by a bounded look."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupflow.core.limits import Limit, Limits, Rate
from groupflow.operate import listing
from groupflow.operate.groups import Groups
from groupflow.operate.listing import TaskFilter, list_groups, list_tasks, search_tasks
from groupflow.operate.namespace import Namespace
from groupflow.operate.pages import Cursor, Slice, UnknownCursor, merge
from groupflow.operate.tasks import Tasks
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.settlements import Retry
from tests.operate.spread import Spread, all_pages
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import found

STRANGE = 'a/b?c=d&e#f "<script>alert(1)</script>" \N{SNOWMAN} %2F'


def of(id_: str, group: str | None, tenant: str, type_: str = "t", **headers: Any) -> Arrival:
    return Arrival(id_, Envelope(type_, group, tenant, "rule", headers, b'{"body": 1}'))


async def pages_of(namespace: Namespace, state: listing.ListedGroups, **how: Any) -> list[str]:
    """Every group of a state, page by page."""
    pages = await all_pages(lambda cursor: list_groups(namespace, state, cursor=cursor, **how))
    return [row.group for page in pages for row in page.groups]


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
    in_turn = sorted(delays, key=lambda name: delays[name])
    assert await pages_of(spread.namespace, "delayed", limit=4) == in_turn
    rows = (await list_tasks(spread.namespace, "delayed", 10)).tasks
    assert [row.id for row in rows] == in_turn[:10]
    assert [row.group for row in rows] == [row.id for row in rows]


async def test_filters(bench: Bench, monkeypatch: Any) -> None:
    await bench.enqueue(
        *(of(f"{n}", f"contact:{n}", "acme" if n % 3 else "other") for n in range(30)),
        of("x", STRANGE, "t/1"),
        of("many", "with-headers", "acme", note="h" * 9000),
    )
    ones = [f"contact:{n}" for n in (1, *range(10, 20))]
    assert await pages_of(bench.namespace, "ready", text="contact:1", limit=4) == ones
    assert len(await pages_of(bench.namespace, "ready", tenant="acme", limit=7)) == 21
    assert await pages_of(bench.namespace, "ready", text="<script>") == [STRANGE]
    assert await pages_of(bench.namespace, "ready", tenant="unknown") == []
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
    told: dict[listing.ListedGroups, tuple[object, ...]] = {
        "running": ("run", "d1, w1", 1, "run0"), "parked": ("die", "die0", 1, "die1"),
        "paused": ("stop", "me", 1, "stop0"), "delayed": ("hold", None, 1, "hold0"),
    }  # fmt: skip
    for state, facts in told.items():
        page = await list_groups(bench.namespace, state)
        (row,) = page.groups
        assert (row.group, row.by, row.waiting, row.head) == facts
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
    assert (await groups.lane("unknown")).total == 0


async def test_each_filter_of_tasks(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(listing, "CHUNK", 3)
    monkeypatch.setattr(listing, "LOOKS", 2)
    await bench.enqueue(
        *(of(f"p{n}", None, "7", "import.a" if n % 2 else "mail") for n in range(10)),
        *(of(f"g{n}", f"contact:{n % 3}", str(n), "import.b") for n in range(9)),
    )

    async def find(wanted: TaskFilter) -> list[str]:
        def look(cursor: str) -> Awaitable[listing.TaskList]:
            return search_tasks(bench.namespace, "queued", wanted, cursor=cursor, limit=4)

        return sorted(row.id for page in await all_pages(look) for row in page.tasks)

    mails = {f"p{n}" for n in range(0, 10, 2)}
    everything = {*(f"p{n}" for n in range(10)), *(f"g{n}" for n in range(9))}
    for wanted, ids in (
        *((TaskFilter(), everything), (TaskFilter(id="p1"), {"p1"})),
        *((TaskFilter(type="mail"), mails), (TaskFilter(type="import.*"), everything - mails)),
        *((TaskFilter(tenant="8"), {"g8"}), (TaskFilter(group="contact:1"), {"g1", "g4", "g7"})),
        *((TaskFilter(type="mail", tenant="8"), set()), (TaskFilter(older=3600.0), set())),
        (TaskFilter(older=0.000001), everything),
    ):
        assert await find(wanted) == sorted(ids), wanted
    page = await search_tasks(bench.namespace, "queued", TaskFilter(id="p9"))
    assert (page.tasks, page.looked_at, page.next is None) == ([], 6, False), "a bounded look"
    for cursor in ("7.1.0.0", "1.2", "a.b.c.d"):
        with pytest.raises(UnknownCursor, match="cursor"):
            await search_tasks(bench.namespace, "queued", TaskFilter(), cursor=cursor)


# The tasks of a state: each once, in order, by pages of any size


async def tasks_of(bench: Bench, state: listing.ListedState, limit: int) -> list[listing.TaskRow]:
    look = partial(listing.look_at_tasks, bench.client, state, limit)
    pages = await all_pages(look, "")
    assert all(len(page.tasks) == len(page.turns) for page in pages)
    return [row for page in pages for row in page.tasks]


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_what_waits_anywhere(bench: Bench, limit: int) -> None:
    """On the plain list, by priority, in groups that are ready, run, wait, are parked, paused.

    Once each, in a group that is paused and runs, or is parked too.
    """
    await bench.enqueue(*(arrival(f"plain{n}") for n in range(5)))
    await bench.enqueue(*(arrival(f"first{n}", priority=5.0) for n in range(3)))
    daemon = await bench.daemon()
    for group in ("run", "parked", "retried"):
        await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(4)))
    claims = {claim.task.group: claim for claim in await daemon.claim("grouped", "1", "2", "3")}
    await daemon.settle(bury(claims["parked"], park=True))
    await daemon.settle(Retry(claims["retried"], 600.0, [{"error": "E", "message": ""}]))
    for group in ("paused", "ready-a", "ready-b"):
        await bench.enqueue(*(arrival(f"{group}{n}", group) for n in range(4)))
    for group in ("paused", "parked", "run"):
        await Groups(bench.namespace).pause(group, "me")
    status = await bench.status()
    assert status.paused == (await list_groups(bench.namespace, "paused")).total == 3
    assert (status.paused_too, status.parked, status.groups) == (2, 1, 6)
    rows = await tasks_of(bench, "queued", limit)
    order = {
        "plain": range(5), "first": range(3), "ready-a": range(4), "ready-b": range(4),
        "retried": range(1, 4), "parked": range(1, 4), "paused": range(4), "run": range(1, 4),
    }  # fmt: skip
    assert [row.id for row in rows] == [f"{name}{n}" for name, some in order.items() for n in some]
    assert {(row.type, row.tenant, row.attempt) for row in rows} == {("t", "42", 1)}
    page = await list_tasks(bench.namespace, "queued", 6)
    assert [row.id for row in page.tasks] == [row.id for row in rows[:6]]
    delayed = await tasks_of(bench, "delayed", limit)
    assert [(row.id, row.group, row.attempt) for row in delayed] == [("retried0", "retried", 2)]
    assert delayed[0].until is not None


async def test_lists_and_tasks_agree_on_what_is_delayed(bench: Bench) -> None:
    """By a delay or a limit; what stands behind a delayed head is queued, with its own time."""
    bench.limits = Limits({"rule": Limit(rate=Rate.parse("1/h"))})
    daemon = await bench.daemon()
    await bench.enqueue(arrival("b0", "b"), arrival("b1", "b"))
    await daemon.complete(await daemon.claim_one())
    await bench.enqueue(*(arrival(f"a{n}", "a", delay=600.0 + n) for n in range(3)))
    await bench.enqueue(arrival("p", delay=600.0), arrival("s", "a", delay=601.0, steps_aside=True))
    states: tuple[listing.ListedState, ...] = ("queued", "delayed")
    for state, ids in zip(states, (["a1", "a2"], ["p", "s", "a0", "b1"]), strict=True):
        rows = await tasks_of(bench, state, 2)
        assert [row.id for row in rows] == ids
        for row in rows:
            task = await found(bench, row.id)
            assert (task.state, task.until) == (state, row.until)
            assert row.until is not None


async def test_a_group_that_runs_some_and_may_run_more(bench: Bench) -> None:
    """Those that wait in it are met once."""
    bench.limits = Limits({"rule": Limit(3)})
    daemon = await bench.daemon()
    await bench.enqueue(*(arrival(f"t{n}", "g") for n in range(5)))
    await daemon.claim("grouped", "1", "2")
    assert [row.id for row in await tasks_of(bench, "queued", 2)] == ["t2", "t3", "t4"]
    bench.events.clear()  # two of a group run at once


async def test_what_runs_the_longest_first(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(6)))
    daemon = await bench.daemon()
    for n in range(6):
        await daemon.claim("grouped", f"w{9 - n}")
    rows = await tasks_of(bench, "running", 2)
    assert [row.id for row in rows] == [f"t{n}" for n in range(6)]
    since = [row.since or 0.0 for row in rows]
    assert (since == sorted(since), min(since) > 0) == (True, True)


@pytest.mark.parametrize("limit", [1, 100])
async def test_what_is_done(bench: Bench, limit: int) -> None:
    """Redis's own walk: each once, however many a step has."""
    daemon = await bench.daemon()
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(600)), arrival("plain"))
    await daemon.work_off()
    assert len((await list_tasks(bench.namespace, "done", 2)).tasks) == 2
    rows = await tasks_of(bench, "done", limit)
    assert sorted(row.id for row in rows) == sorted(["plain", *(f"t{n}" for n in range(600))])
    (last,) = [row for row in rows if row.id == "plain"]
    assert (last.group, last.attempt, last.tenant, last.type) == (None, 1, None, "t")
    assert last.since is not None
    await bench.enqueue(arrival("wrong", "g"))
    assert await Tasks(bench.namespace).drop("wrong") is None
    assert [row.id for row in await tasks_of(bench, "dropped", limit)] == ["wrong"]


async def test_a_page_passes_over_so_many_groups_and_no_more(
    bench: Bench, monkeypatch: Any
) -> None:
    """Parked groups without a task behind their dead letter, as many as you like."""
    daemon = await bench.daemon()
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(2500)))
    slots = [f"w{n}" for n in range(500)]
    for _ in range(5):
        claims = await daemon.claim("grouped", *slots)
        await daemon.settle(*(bury(claim, park=True) for claim in claims))
    await bench.enqueue(arrival("last", "g7"))
    page = await listing.look_at_tasks(bench.client, "queued", 10)
    assert page.next is not None
    assert [row.id for row in await tasks_of(bench, "queued", 10)] == ["last"]
    whole = await list_tasks(bench.namespace, "queued", 10)
    assert ([row.id for row in whole.tasks], whole.next) == (["last"], None)
    monkeypatch.setattr(listing, "LOOKS", 0)
    assert (await list_tasks(bench.namespace, "queued", 10)).next


# Lists of several stores become one: whole, in order, behind any filter

Lists = list[list[tuple[int, bool]]]
LOOKED = 4  # entries a look

LISTS: st.SearchStrategy[Lists] = st.lists(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=12).map(sorted),
    min_size=2,
    max_size=5,
)


def look(entries: list[tuple[int, bool]], begin: int, limit: int) -> Slice[int]:
    """What a store's bounded look gives: entries that pass, so many of them, and where it ended."""
    found: Slice[int] = Slice()
    for turn, passes in entries[begin : begin + LOOKED]:
        if len(found.rows) == limit:
            break
        found.looked += 1
        if passes:
            found.add(turn, turn, found.looked)
    end = begin + found.looked
    found.next = end if end < len(entries) else None
    return found


@given(LISTS, st.integers(1, 6))
def test_pages_are_whole_and_in_order(lists: Lists, limit: int) -> None:
    told: str | None = "0"
    found: list[int] = []
    looked = pages = 0
    while told is not None:
        cursor = Cursor.parse(told, len(lists))
        slices = {n: look(lists[n], cursor.places[n] or 0, limit) for n in cursor.open}
        page = merge(slices, cursor, limit)
        assert len(page.rows) <= limit
        found += page.rows
        looked += page.looked
        told = page.cursor.told(())
        pages += 1
        assert pages <= 100, "it never ends"
    assert found == sorted(turn for entries in lists for turn, passes in entries if passes)
    assert looked >= len(found)


@given(LISTS, st.integers(1, 6))
def test_a_list_that_is_away_waits_for_its_return(lists: Lists, limit: int) -> None:
    """Pages go on without it, and end; from the last cursor on it is read from its beginning."""
    away, others = 0, [n for n in range(len(lists)) if n]
    cursor = Cursor.parse("0", len(lists))
    found: list[int] = []
    while cursor.told({away}) is not None:
        slices = {n: look(lists[n], cursor.places[n] or 0, limit) for n in cursor.open if n != away}
        page = merge(slices, cursor, limit)
        cursor, found = page.cursor, found + page.rows
    assert found == sorted(turn for n in others for turn, passes in lists[n] if passes)
    assert cursor.open == [away]
    assert cursor.places[away] == 0


def test_a_cursor_comes_back_as_it_was() -> None:
    """One of another number of partitions is refused."""
    cursor = Cursor((0, None, 17))
    assert str(cursor) == "0--17"
    assert Cursor.parse(str(cursor), 3) == cursor
    for text in ("1", "1-2", "1-2-3-4", "---"):
        with pytest.raises(UnknownCursor, match="another number of partitions"):
            Cursor.parse(text, 3)
