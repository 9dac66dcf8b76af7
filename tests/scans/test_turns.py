"""A shard goes through its rows page by page, sleeps, and lets nobody else at them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from groupflow import Scan, Shard
from groupflow.core.outcome import Turn
from tests.scans.machine import Machine, begin
from tests.scans.table import Table, scan_of
from tests.store.bench import Bench


async def test_an_empty_table_costs_one_fetch_a_sleep(bench: Bench) -> None:
    table, machine = await begin(bench, shards=3, idle=7.0)
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert outcome.after == 7.0
    assert (bench.count("queued_grouped"), bench.count("running_grouped")) == (3, 0)
    assert await machine.work_off() == 2
    assert await machine.work_off() == 0
    assert len(table.pages) == 3
    assert await machine.round() == 3
    assert len(table.pages) == 6


async def test_rows_out_of_order_stop_a_cursor(bench: Bench) -> None:
    """What comes behind a later place would be passed over for good."""
    table = Table()
    scan = scan_of(table, cursor=True, find=True)

    @scan.fetch
    async def fetch(shard: object) -> list[int]:
        return [3, 1, 2]

    machine = await Machine.start(bench, scan)
    await machine.turn()
    assert table.done == []
    assert "order of their places" in (await machine.state())["trouble"]


async def test_a_database_that_is_away_fails_no_row(bench: Bench) -> None:
    table, machine = await begin(bench, {1, 2})
    table.away = OSError("connection refused")
    pauses = []
    for _ in range(7):
        outcome = await machine.turn()
        assert isinstance(outcome, Turn)
        pauses.append(outcome.after)
        await machine.wake_up()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert "connection refused" in (await machine.state())["trouble"]
    table.away = SystemExit(3)  # which ends no daemon
    assert isinstance(await machine.turn(), Turn)
    assert (await machine.state())["trouble"].startswith("SystemExit")
    await machine.wake_up()
    table.away = None
    await machine.work_off()
    assert table.done == [1, 2]
    assert (await machine.state())["trouble"] == ""


@pytest.mark.parametrize("what", ["find", "fetch", "working"])
async def test_who_does_not_answer_holds_no_worker_and_fails_no_row(
    bench: Bench, what: str
) -> None:
    """A fetch may take only so long; and the rows may have no connection."""
    facts: dict[str, Any] = {"find": what == "find", "fetch_timeout": 0.01}
    table, machine = await begin(bench, {1}, broken={1}, **facts)
    await machine.turn()
    told = f"TimeoutError: {what} took over 0.01 s (fetch_timeout)"
    if what == "working":
        scan = scan_of(table, **facts)
        told, scan.working = "OSError: connection refused", _refused  # type: ignore[method-assign]
        machine = await Machine.start(bench, scan, name="d2")
    table.silent = what
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert outcome.after == 1.0
    state = await machine.state()
    assert (state["trouble"], state["deferred"]["1"][0]) == (told, 1)


@asynccontextmanager
async def _refused(shard: Shard) -> AsyncIterator[Shard]:
    raise OSError("connection refused")
    yield shard


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"name": "a b"}, "the scan's name"),
        ({"shards": 0}, "shards = 0"),
        ({"page": 0}, "page = 0"),
        ({"idle": 0}, "idle = 0"),
        ({"max_attempts": 0}, "max_attempts = 0"),
        ({"interval": 0}, "interval = 0"),
        ({"jitter": 2}, "jitter = 2"),
        ({"on_retry": "wait"}, "on_retry = 'wait'"),
        ({"timeout": 0}, "timeout = 0"),
        ({"fetch_timeout": 0}, "fetch_timeout = 0"),
    ],
)
def test_what_can_not_be(facts: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Scan(**{"name": "orders", **facts})  # type: ignore[arg-type]


def test_a_scan_has_all_its_functions() -> None:
    scan = Scan("orders")
    with pytest.raises(ValueError, match="no @fetch"):
        scan.check()
    with pytest.raises(ValueError, match="coroutine function"):
        scan.fetch(lambda shard: [])  # type: ignore[type-var]
    scan.fetch(Table().fetch)
    with pytest.raises(ValueError, match="no @row"):
        scan.check()
    scan.row(key=int, after=int)(Table().work)
    with pytest.raises(ValueError, match="needs @find"):
        scan.check()
