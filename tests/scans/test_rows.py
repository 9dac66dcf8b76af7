"""Rows that fail: deferred, skipped, dead letters with their key, redriven, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from groupflow.core.limits import HandLimit
from groupflow.core.outcome import Halt, Turn
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.operate.limits import LimitsByHand
from groupflow.operate.types import read_types
from groupflow.scans.state import MOST_ASIDE, text_of_key
from groupflow.store.envelope import Envelope
from groupflow.store.scans import bury_row, scope_of
from tests.scans.machine import GROUP, Machine, Table, begin, scan_of
from tests.store.bench import Bench
from tests.store.task_state import letter, pass_time, redrive

FIND = pytest.mark.parametrize("find", [True, False])


async def dying(bench: Bench, rows: Iterable[int], **facts: Any) -> tuple[Table, Machine, str]:
    """Row 5 is broken, and a dead letter at once; its id."""
    table, machine = await begin(bench, rows, broken={5}, max_attempts=1, **facts)
    await machine.work_off()
    (id_,) = (await machine.state())["dead"].values()
    return table, machine, id_


@FIND
async def test_a_row_that_always_fails_stops_nobody(bench: Bench, find: bool) -> None:
    table, machine = await begin(bench, range(25), broken={0}, find=find, max_attempts=3)
    await machine.work_off()
    await machine.round()
    assert table.done == list(range(1, 25))
    assert table.open == {0}
    found = [each async for each in DeadLetters(bench.namespace).each()]
    assert [(each.group, each.attempts, each.type) for each in found] == [(GROUP, 3, "scan:orders")]
    assert found[0].reason == "row 0: ValueError: row 0 is broken"
    assert machine.measures["orders"].dead == 1
    counted = {row.type: row for row in (await read_types(bench.namespace, 1)).types}
    assert (counted["other"].done, counted["other"].failed) == (24, 2)
    assert counted["scan:orders"].dead == 1
    # Asleep, it isn't tried again: the dead row is skipped.
    table.pages.clear()
    await machine.round()
    assert [shard.skip for shard in table.pages] == [(0,)]


async def test_a_row_that_is_not_due_is_skipped_and_wakes_its_shard(bench: Bench) -> None:
    table, machine = await begin(bench, {1, 2, 3}, broken={2}, interval=-3.0, idle=60.0)
    assert isinstance(await machine.turn(), Turn)
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert 2.0 < outcome.after <= 3.0
    assert table.done == [1, 3]
    assert [shard.skip for shard in table.pages] == [(), (2,)]
    assert (await machine.state())["deferred"]["2"][0] == 1


@FIND
async def test_a_deferred_row_that_is_done_elsewhere_is_forgotten(bench: Bench, find: bool) -> None:
    table, machine = await begin(bench, {7}, broken={7}, find=find)
    await machine.turn()
    assert list((await machine.state())["deferred"]) == ["7"]
    table.open.clear()
    await machine.work_off()
    assert (await machine.state())["deferred"] == {}


@FIND
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_redriven_row_is_run_again(bench: Bench, find: bool, hangs: bool) -> None:
    """And may fail again, and once it is dropped it comes again by itself."""
    table, machine, id_ = await dying(bench, {4, 5, 6}, find=find, timeout=0.01 if hangs else None)
    reason = "ValueError: row 5 is broken"
    if hangs:
        table.broken, table.hangs = set(), {5}
        reason = "TimeoutError: the row took over 0.01 s (timeout)"
    await redrive(bench, id_)
    await machine.work_off()
    await machine.round()
    ((key, id_),) = (await machine.state())["dead"].items()
    dead = await letter(bench, id_)
    assert (key, dead.reason.endswith(reason)) == ("5", True), dead.reason
    table.broken.clear()
    table.hangs.clear()
    if find:
        assert await DeadLetters(bench.namespace).drop(dead)
    else:
        await redrive(bench, id_)
    await machine.work_off()
    await machine.round()
    assert sorted(table.done) == [4, 5, 6]
    assert (await machine.state())["dead"] == {}


async def test_a_thousand_rows_that_fail_park_the_shard(bench: Bench) -> None:
    many = range(MOST_ASIDE + 10)
    table, machine = await begin(bench, many, broken=many, page=500, interval=-3600.0)
    outcome = None
    while not isinstance(outcome, Halt):
        outcome = await machine.turn()
        assert outcome is not None
    story = await Groups(bench.namespace).why(GROUP)
    assert story.state == "parked"
    assert "1000 rows of the shard have failed" in story.reason
    assert len(outcome.context["deferred"]) == MOST_ASIDE
    (counted,) = (await read_types(bench.namespace, 1)).types
    assert (counted.failed, counted.dead) == (MOST_ASIDE, 1)
    # An operator redrives the shard, which goes on where it was.
    table.broken.clear()
    await redrive(bench, (await machine.record()).id_of(0))
    await machine.turn()
    assert sorted(table.done) == list(many)[MOST_ASIDE:]
    assert len((await machine.state())["deferred"]) == MOST_ASIDE


async def test_a_shard_that_holds_waits_behind_its_row(bench: Bench) -> None:
    facts: dict[str, Any] = {"cursor": True, "on_retry": "hold", "interval": -3600.0}
    table, machine = await begin(bench, {1, 2, 3, 4, 5}, broken={3}, **facts)
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert outcome.after == pytest.approx(3600.0, abs=1.0)
    await machine.wake_up()
    await machine.turn()  # woken before the row's time, it waits on
    assert table.done == [1, 2]
    assert (await machine.state())["deferred"]["3"][0] == 1


async def test_a_row_that_kills_its_daemon_is_found_and_deferred(bench: Bench) -> None:
    """The page's rows are tried one by one behind a crash, each named before."""
    bench.with_faults = True
    table, machine = await begin(bench, range(1, 7), hangs={4}, max_attempts=1)
    deaths = 0
    while claims := await machine.daemon.claim("grouped", "w1"):
        attempt = asyncio.create_task(machine.outcome(claims[0]))
        hanging = asyncio.create_task(table.reached.wait())
        await asyncio.wait([attempt, hanging], return_when=asyncio.FIRST_COMPLETED)
        hanging.cancel()
        if attempt.done():
            assert await machine.settle(claims[0], attempt.result())
            continue
        deaths += 1
        table.reached.clear()
        attempt.cancel()
        await asyncio.wait([attempt])
        bench.expire(machine.daemon.name)
        scan = scan_of(table, max_attempts=1)
        machine = await Machine.start(bench, scan, name=f"heir{deaths}")
        await machine.daemon.sessions.reap()
        await pass_time(bench)  # a shard that lost two leases waits before its next turn
    assert deaths == 2
    assert sorted(table.done) == [1, 2, 3, 5, 6]
    (dead,) = [each async for each in DeadLetters(bench.namespace).each()]
    assert "its daemon died while it ran this row" in dead.reason
    assert dead.attempts == 1


async def test_only_who_holds_the_shard_buries_its_rows(bench: Bench) -> None:
    _, machine = await begin(bench, {1})
    claim = await machine.claim()
    envelope = Envelope("t", GROUP, None, None, {}, b"", scope_of("orders"))
    words: Any = {"reason": "r", "kind": "k", "errors": [], "attempts": 1}
    assert not await bury_row(bench.client, envelope, "row", claim.fence - 1, **words)
    assert await machine.settle(claim, await machine.outcome(claim))
    assert not await bury_row(bench.client, envelope, "row", claim.fence - 1, **words)


async def test_a_shard_in_whose_group_more_may_run_buries_its_rows(bench: Bench) -> None:
    table, machine = await begin(bench, range(3), broken={1}, max_attempts=1)
    await LimitsByHand(bench.namespace).begin(HandLimit("group", GROUP, 2, None), "ops", 60.0)
    await machine.work_off(20)
    assert table.open == {1}
    (dead,) = [each async for each in DeadLetters(bench.namespace).each()]
    assert dead.group == GROUP


@pytest.mark.parametrize("key", [object(), "x" * 300])
def test_a_key_that_can_not_be_kept(key: object) -> None:
    with pytest.raises(ValueError, match="a row's key"):
        text_of_key(key)
