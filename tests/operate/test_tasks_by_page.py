"""The tasks of a state, page by page: each once, in order, whatever a page's size."""

from __future__ import annotations

import pytest

from groupflow.operate.groups import Groups
from groupflow.operate.listing import ListedState, TaskRow, list_tasks, look_at_tasks
from groupflow.store.settlements import Retry
from tests.store.bench import Bench, arrival, bury


async def pages_of(bench: Bench, state: ListedState, limit: int) -> list[TaskRow]:
    found: list[TaskRow] = []
    begin, is_over = "", False
    while not is_over:
        page = await look_at_tasks(bench.client, state, limit, begin)
        assert len(page.rows) == len(page.turns)
        found += page.rows
        begin, is_over = page.next, not page.next
    return found


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_what_waits_anywhere(bench: Bench, limit: int) -> None:
    """On the plain list, by priority, in groups that are ready, run, wait, are parked, paused."""
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
    await Groups(bench.namespace).pause("paused", "me")
    rows = await pages_of(bench, "queued", limit)
    assert [row.id for row in rows] == [
        *(f"plain{n}" for n in range(5)),
        *(f"first{n}" for n in range(3)),
        *(f"ready-a{n}" for n in range(4)),
        *(f"ready-b{n}" for n in range(4)),
        *(f"run{n}" for n in range(1, 4)),
        *(f"retried{n}" for n in range(1, 4)),
        *(f"parked{n}" for n in range(1, 4)),
        *(f"paused{n}" for n in range(4)),
    ]
    assert {(row.type, row.tenant, row.attempt) for row in rows} == {("t", "42", 1)}
    assert [row.id for row in (await list_tasks(bench.namespace, "queued", 6)).rows] == [
        row.id for row in rows[:6]
    ]
    delayed = await pages_of(bench, "delayed", limit)
    assert [(row.id, row.group, row.attempt) for row in delayed] == [("retried0", "retried", 2)]
    assert delayed[0].until is not None


async def test_what_runs_the_longest_first(bench: Bench) -> None:
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(6)))
    daemon = await bench.daemon()
    for n in range(6):
        await daemon.claim("grouped", f"w{9 - n}")
    rows = await pages_of(bench, "running", 2)
    assert [row.id for row in rows] == [f"t{n}" for n in range(6)]
    since = [row.since or 0.0 for row in rows]
    assert (since == sorted(since), min(since) > 0) == (True, True)


@pytest.mark.parametrize("limit", [1, 100])
async def test_what_is_done(bench: Bench, limit: int) -> None:
    """Redis's own walk: each once, however many a step has; a small history the latest first."""
    daemon = await bench.daemon()
    for n in range(3):
        await bench.enqueue(arrival(f"t{n}", "g"))
        await daemon.work_off()
    rows = (await list_tasks(bench.namespace, "done", 2)).rows
    assert [row.id for row in rows] == ["t2", "t1"]
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(3, 600)), arrival("plain"))
    await daemon.work_off()
    rows = await pages_of(bench, "done", limit)
    assert sorted(row.id for row in rows) == sorted(["plain", *(f"t{n}" for n in range(600))])
    (last,) = [row for row in rows if row.id == "plain"]
    assert (last.group, last.attempt, last.tenant, last.type) == (None, 1, None, "t")
    assert last.since is not None


async def test_a_page_passes_over_so_many_groups_and_no_more(bench: Bench) -> None:
    """Parked groups without a task behind their dead letter, as many as you like."""
    daemon = await bench.daemon()
    await bench.enqueue(*(arrival(f"t{n}", f"g{n}") for n in range(2500)))
    slots = [f"w{n}" for n in range(500)]
    for _ in range(5):
        await daemon.settle(
            *[bury(claim, park=True) for claim in await daemon.claim("grouped", *slots)]
        )
    await bench.enqueue(arrival("last", "g7"))
    page = await look_at_tasks(bench.client, "queued", 10)
    assert page.next
    assert [row.id for row in await pages_of(bench, "queued", 10)] == ["last"]
