"""A shard goes through its rows page by page, sleeps, and shares them with no other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from groupflow import Scan, Shard
from groupflow.core.outcome import Turn
from groupflow.flow.settling import Ran, settlement_of
from groupflow.flow.worker import _report
from groupflow.operate.types import read_types
from groupflow.scans.state import ShardState, merged
from tests.scans.machine import POLICIES, Machine, Table, begin, scan_of
from tests.store.bench import Bench


async def test_an_empty_table_costs_one_fetch_a_round(bench: Bench) -> None:
    table, machine = await begin(bench, shards=3, idle=7.0)
    claim = await machine.claim()
    outcome = await machine.outcome(claim)
    assert isinstance(outcome, Turn)
    assert outcome.after == 7.0
    with capture_logs() as logs:  # each shard has one every few seconds, which changes nothing
        settlement = settlement_of(claim, outcome, POLICIES.of(claim.rule, None), Ran(0, 0, "d1"))
        _report(settlement, 0.0, print)
    assert [(each["outcome"], each["log_level"]) for each in logs] == [("turn", "debug")]
    assert await machine.settle(claim, outcome)
    assert (bench.count("queued_grouped"), bench.count("running_grouped")) == (3, 0)
    assert await machine.work_off() == 2
    assert await machine.work_off() == 0
    assert len(table.pages) == 3
    assert await machine.round() == 3
    assert len(table.pages) == 6


@pytest.mark.parametrize(
    ("rows", "said"), [([3, 1, 2], "order of their places"), ([1, 1, 2], "have one place, 1")]
)
async def test_rows_out_of_order_stop_a_cursor(bench: Bench, rows: list[int], said: str) -> None:
    """What comes behind a later place, or the same one, would be passed over for good."""
    table = Table()
    scan = scan_of(table, cursor=True, find=True)

    @scan.fetch
    async def fetch(shard: object) -> list[int]:
        return rows

    machine = await Machine.start(bench, scan)
    await machine.turn()
    assert table.done == []
    assert said in (await machine.state())["trouble"]


async def test_a_database_that_is_away_fails_no_row(bench: Bench) -> None:
    table, machine = await begin(bench, {1, 2})
    table.away = OSError("connection refused")
    pauses = []
    with capture_logs() as logs:
        for _ in range(7):
            outcome = await machine.turn()
            assert isinstance(outcome, Turn)
            pauses.append(outcome.after)
            await machine.wake_up()
    assert [each["log_level"] for each in logs] == ["warning", *["debug"] * 6]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert "connection refused" in (await machine.state())["trouble"]
    table.away = SystemExit(3)  # which ends no daemon
    assert isinstance(await machine.turn(), Turn)
    assert (await machine.state())["trouble"].startswith("SystemExit")
    await machine.wake_up()
    table.away = None
    with capture_logs() as logs:
        await machine.work_off()
    assert [(each["event"], each["tried"]) for each in logs] == [("scan.goes_on", 8)]
    assert table.done == [1, 2]
    assert (await machine.state())["trouble"] == ""


@pytest.mark.parametrize("what", ["find", "fetch", "working", "connection"])
async def test_a_silent_database_holds_no_worker_and_fails_no_row(bench: Bench, what: str) -> None:
    """A fetch may take only so long; and the rows may have no connection."""
    facts: dict[str, Any] = {"find": what == "find", "fetch_timeout": 0.01}
    table, machine = await begin(bench, {1}, broken={1}, **facts)
    await machine.turn()
    told = f"TimeoutError: {what} took over 0.01 s (fetch_timeout)"
    if what in ("working", "connection"):
        scan = scan_of(table, **facts)
        scan.working = _refused if what == "working" else _silent  # type: ignore[method-assign]
        told = "OSError: connection refused" if what == "working" else told
        machine = await Machine.start(bench, scan, name="d2")
    table.silent = what
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert outcome.after == 1.0
    state = await machine.state()
    assert (state["trouble"], state["deferred"]["1"][0]) == (told, 1)


@asynccontextmanager
async def _silent(shard: Shard) -> AsyncIterator[Shard]:
    await asyncio.Event().wait()
    yield shard


@asynccontextmanager
async def _refused(shard: Shard) -> AsyncIterator[Shard]:
    raise OSError("connection refused")
    yield shard


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *((name, 0) for name in ("shards", "page", "idle", "max_attempts", "interval", "timeout")),
        *(("fetch_timeout", 0), ("jitter", 2), ("on_retry", "wait")),
    ],
)
def test_what_can_not_be(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{setting} = {value!r}"):
        Scan("orders", **{setting: value})
    with pytest.raises(ValueError, match="the scan's name"):
        Scan("a b")


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


# Another number of shards: the old ones end, then new ones start; nothing missed or twice


CURSOR: dict[str, Any] = {"cursor": True, "on_retry": "hold"}


@pytest.mark.parametrize("facts", [{}, CURSOR])
@pytest.mark.parametrize("seed", range(3))
async def test_each_row_is_done_once(bench: Bench, seed: int, facts: dict[str, Any]) -> None:
    """However far each shard was, and however often it changes."""
    chance = random.Random(seed)
    table, machine = await begin(bench, range(300), shards=chance.randint(1, 5), **facts)
    for n in range(3):
        for _ in range(chance.randint(0, 12)):
            await machine.turn()
        scan = scan_of(table, shards=chance.randint(1, 5), **facts)
        machine = await Machine.start(bench, scan, name=f"newer{n}")
    await machine.rounds(20)
    assert sorted(table.done) == list(range(300))
    table.open |= {300, 301, 302}
    await machine.round()
    assert sorted(table.done) == list(range(303))
    record = await machine.record()
    assert (record.count, record.closing) == (scan.shards, False)
    assert bench.count("queued_grouped") == scan.shards
    (row,) = (await read_types(bench.namespace, 1)).types  # rows, and shards that ended
    assert (row.done, row.failed) == (303 + bench.count("done"), 0)


async def test_old_shards_end_before_new_ones_start(bench: Bench) -> None:
    table, machine = await begin(bench, range(100), shards=2, **CURSOR)
    claim = await machine.claim()  # one is at work
    newer = await Machine.start(bench, scan_of(table, shards=3, **CURSOR), name="d2")
    await newer.rounds(5)
    assert (await newer.record()).generation == 1
    assert {shard.count for shard in table.pages} <= {2}
    assert await machine.settle(claim, await machine.outcome(claim))
    await newer.rounds(12)
    assert sorted(table.done) == list(range(100))
    assert (await newer.record()).count == 3


async def test_what_failed_is_known_to_the_new_shards(bench: Bench) -> None:
    table, machine = await begin(bench, range(20), broken={3, 8}, shards=2, max_attempts=2)
    await machine.work_off()
    await machine.round()
    assert machine.measures["orders"].dead == 2
    machine = await Machine.start(bench, scan_of(table, shards=3, max_attempts=2), name="d2")
    table.pages.clear()
    await machine.rounds()
    assert all(set(shard.skip) == {3, 8} for shard in table.pages if shard.count == 3)
    assert machine.measures["orders"].dead == 0
    assert len(table.done) == len(set(table.done)) == 18


async def test_what_the_old_shards_left_fills_no_new_one(bench: Bench) -> None:
    """It is more than one shard may have, and all have it."""
    facts: dict[str, Any] = {"max_attempts": 1, "page": 500}
    rows = set(range(1200))
    table, machine = await begin(bench, rows, broken=rows, shards=2, **facts)
    await machine.work_off()
    machine = await Machine.start(bench, scan_of(table, shards=3, **facts), name="d2")
    await machine.rounds(3)
    table.open.add(1200)
    table.broken.add(1200)
    await machine.wake_up()
    assert [type(await machine.turn()) for _ in range(3)] == [Turn] * 3
    state = await machine.state(1200 % 3)
    assert (len(state["dead"]), state["inherited"]) == (1201, 1200)
    assert "inherited" not in merged([{"deferred": {}, "dead": {}}]) | ShardState().as_json()


async def test_what_is_behind_a_cursor_goes_on_with_the_new_shards(bench: Bench) -> None:
    """Each of them gets all rows that wait, and no page brings those of its own again."""
    facts: dict[str, Any] = {"cursor": True, "find": True, "page": 1, "interval": -3600.0}
    table, machine = await begin(bench, range(6), broken=range(6), **facts)
    await machine.work_off()
    table.broken.clear()
    machine = await Machine.start(bench, scan_of(table, shards=3, **facts), name="d2")
    await machine.rounds()
    for index in range(3):
        state, id_ = await machine.state(index), (await machine.record()).id_of(index)
        for row in state["deferred"].values():
            row[1] = 0.0  # it is due
        bench.raw.hset(bench.keys("task_state", id_), "context", orjson.dumps(state))
    await machine.rounds()
    assert sorted(table.done) == list(range(6))


async def test_a_crash_while_it_changes(bench: Bench) -> None:
    """A shard that reports twice, or begins the next generation twice, changes nothing."""
    table, machine = await begin(bench, range(30), shards=2)
    await machine.work_off()
    newer = await Machine.start(bench, scan_of(table, shards=3), name="d2")
    bench.with_faults = True
    await newer.wake_up()
    for claim in await newer.daemon.claim("grouped", "w1", "w2"):
        await newer.outcome(claim)  # the last of them begins the next generation
    assert (await newer.record()).generation == 2
    bench.expire("d2")
    heir = await Machine.start(bench, scan_of(table, shards=3), name="d3")
    await heir.daemon.sessions.reap()
    await heir.rounds()
    assert (await heir.record()).generation == 2
    assert bench.count("queued_grouped") == 3
    assert sorted(table.done) == list(range(30))
