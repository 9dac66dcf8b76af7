"""Rows that fail: deferred, skipped, dead letters with their key, redriven, bounded."""

from __future__ import annotations

import asyncio

import pytest

from groupflow import Shard
from groupflow.core.outcome import Halt, Turn
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.scans.state import MOST_ASIDE, text_of_key
from groupflow.store.scans import RowDeath, scope_of
from tests.scans.machine import Machine
from tests.scans.table import Table, scan_of
from tests.store.bench import Bench
from tests.store.task_state import letter, pass_time, redrive


@pytest.mark.parametrize("find", [True, False])
async def test_a_row_that_always_fails_stops_nobody(bench: Bench, find: bool) -> None:
    table = Table(set(range(25)), broken=lambda row: row == 0)
    machine = await Machine.start(bench, scan_of(table, find=find, max_attempts=3))
    await machine.until_asleep()
    await machine.round()
    assert table.done == list(range(1, 25))
    assert table.open == {0}
    found = [each async for each in DeadLetters(bench.namespace).each()]
    assert [(each.group, each.attempts, each.type) for each in found] == [
        ("scan:orders:0", 3, "scan:orders")
    ]
    assert found[0].reason == "row 0: ValueError: row 0 is broken"
    assert machine.measures["orders"].dead == 1
    # Asleep, it isn't tried again: the dead row is skipped.
    table.pages.clear()
    await machine.round()
    assert [shard.skip for shard in table.pages] == [(0,)]


async def test_a_row_that_is_not_due_is_skipped(bench: Bench) -> None:
    table = Table({1, 2, 3}, broken=lambda row: row == 2)
    machine = await Machine.start(bench, scan_of(table, interval=-3600.0))
    assert isinstance(await machine.turn(), Turn)
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert table.done == [1, 3]
    assert [shard.skip for shard in table.pages] == [(), (2,)]
    assert (await machine.state())["deferred"]["2"][0] == 1


async def test_a_shard_wakes_when_its_row_is_due(bench: Bench) -> None:
    table = Table({2}, broken=lambda row: True)
    machine = await Machine.start(bench, scan_of(table, interval=-3.0, idle=60.0))
    await machine.turn()
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert 2.0 < outcome.after <= 3.0


@pytest.mark.parametrize("find", [True, False])
async def test_a_deferred_row_that_somebody_else_has_done_is_forgotten(
    bench: Bench, find: bool
) -> None:
    table = Table({7}, broken=lambda row: True)
    machine = await Machine.start(bench, scan_of(table, find=find))
    await machine.turn()
    assert list((await machine.state())["deferred"]) == ["7"]
    table.open.clear()
    await machine.until_asleep()
    assert (await machine.state())["deferred"] == {}


@pytest.mark.parametrize("find", [True, False])
async def test_a_redriven_row_is_run_again(bench: Bench, find: bool) -> None:
    broken = {5}
    table = Table({4, 5, 6}, broken=lambda row: row in broken)
    machine = await Machine.start(bench, scan_of(table, find=find, max_attempts=1))
    await machine.until_asleep()
    (id_,) = (await machine.state())["dead"].values()
    broken.clear()
    await redrive(bench, id_)
    await machine.until_asleep()
    await machine.round()
    assert sorted(table.done) == [4, 5, 6]
    assert (await machine.state())["dead"] == {}


async def test_a_redriven_row_that_fails_again_is_a_dead_letter_again(bench: Bench) -> None:
    table = Table({5}, broken=lambda row: True)
    machine = await Machine.start(bench, scan_of(table, find=True, max_attempts=1))
    await machine.until_asleep()
    (id_,) = (await machine.state())["dead"].values()
    await redrive(bench, id_)
    await machine.until_asleep()
    assert (await letter(bench, id_)).reason == "ValueError: row 5 is broken"
    assert list((await machine.state())["dead"]) == ["5"]


async def test_a_redriven_row_may_take_only_so_long(bench: Bench) -> None:
    table = Table({5}, broken=lambda row: True)
    scan = scan_of(table, find=True, max_attempts=1, timeout=0.01)
    machine = await Machine.start(bench, scan)
    await machine.until_asleep()
    (id_,) = (await machine.state())["dead"].values()

    @scan.row(key=int)
    async def work(row: int, shard: Shard) -> None:
        await asyncio.Event().wait()

    await redrive(bench, id_)
    await machine.until_asleep()
    words = "TimeoutError: the row took over 0.01 s (timeout)"
    assert (await letter(bench, id_)).reason == words


async def test_a_dropped_letter_lets_its_row_come_again(bench: Bench) -> None:
    broken = {5}
    table = Table({5}, broken=lambda row: row in broken)
    machine = await Machine.start(bench, scan_of(table, max_attempts=1))
    await machine.until_asleep()
    (id_,) = (await machine.state())["dead"].values()
    assert await DeadLetters(bench.namespace).drop(await letter(bench, id_))
    broken.clear()
    await machine.round()
    assert table.done == [5]


async def test_a_thousand_rows_that_fail_park_the_shard(bench: Bench) -> None:
    many = MOST_ASIDE + 10
    broken = set(range(many))
    table = Table(set(broken), broken=lambda row: row in broken)
    machine = await Machine.start(bench, scan_of(table, page=500, interval=-3600.0))
    outcome = None
    while not isinstance(outcome, Halt):
        outcome = await machine.turn()
        assert outcome is not None
    story = await Groups(bench.namespace).why("scan:orders:0")
    assert story.state == "parked"
    assert "1000 rows of the shard have failed" in story.reason
    assert len(outcome.context["deferred"]) == MOST_ASIDE
    # Whoever has seen to it redrives the shard, which goes on where it was.
    broken.clear()
    await redrive(bench, (await machine.record()).id_of(0))
    await machine.turn()
    assert sorted(table.done) == list(range(MOST_ASIDE, many))
    assert len((await machine.state())["deferred"]) == MOST_ASIDE


async def test_a_shard_that_holds_waits_behind_its_row(bench: Bench) -> None:
    broken = {3}
    table = Table({1, 2, 3, 4, 5}, broken=lambda row: row in broken)
    scan = scan_of(table, cursor=True, on_retry="hold", interval=-3600.0)
    machine = await Machine.start(bench, scan)
    outcome = await machine.turn()
    assert isinstance(outcome, Turn)
    assert outcome.after == pytest.approx(3600.0, abs=1.0)
    assert table.done == [1, 2]
    await machine.wake_up()
    await machine.turn()  # woken before the row's time, it waits on
    assert table.done == [1, 2]
    assert (await machine.state())["deferred"]["3"][0] == 1


async def test_a_shard_that_holds_goes_on_behind_a_dead_row(bench: Bench) -> None:
    table = Table({1, 2, 3}, broken=lambda row: row == 2)
    scan = scan_of(table, cursor=True, on_retry="hold", max_attempts=3)
    machine = await Machine.start(bench, scan)
    for _ in range(6):
        await machine.round()
    assert table.done == [1, 3]
    assert (await machine.state())["after"] == 3
    assert machine.measures["orders"].dead == 1


async def test_a_cursor_steps_aside_and_comes_back_to_its_row(bench: Bench) -> None:
    broken = {2}
    table = Table({1, 2, 3}, broken=lambda row: row in broken)
    machine = await Machine.start(bench, scan_of(table, cursor=True, find=True))
    await machine.turn()
    assert table.done == [1, 3]
    broken.clear()
    await machine.until_asleep()
    assert table.done == [1, 3, 2]
    assert (await machine.state())["after"] == 3


async def test_a_row_that_kills_its_daemon_is_found_and_deferred(bench: Bench) -> None:
    """The page's rows are tried one by one behind a crash, each named before."""
    bench.with_faults = True
    table = Table({1, 2, 3, 4, 5, 6})
    reached, deaths = asyncio.Event(), 0
    scan = scan_of(table, max_attempts=1)

    @scan.row(key=int)
    async def work(row: int, shard: Shard) -> None:
        if row == 4:
            reached.set()
            await asyncio.Event().wait()
        await table.work(row, shard)

    machine = await Machine.start(bench, scan)
    while claims := await machine.daemon.claim("grouped", "w1"):
        attempt = asyncio.create_task(machine.outcome(claims[0]))
        dying = asyncio.create_task(reached.wait())
        await asyncio.wait([attempt, dying], return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if attempt.done():
            assert await machine.settle(claims[0], attempt.result())
            continue
        deaths += 1
        reached.clear()
        attempt.cancel()
        await asyncio.wait([attempt])
        bench.expire(machine.daemon.name)
        machine = await Machine.start(bench, scan, name=f"heir{deaths}")
        await machine.daemon.sessions.reap()
        await pass_time(bench)  # a shard that lost two leases waits before its next turn
    assert deaths == 2
    assert sorted(table.done) == [1, 2, 3, 5, 6]
    (dead,) = [each async for each in DeadLetters(bench.namespace).each()]
    assert "its daemon died while it ran this row" in dead.reason
    assert dead.attempts == 1


async def test_only_who_holds_the_shard_buries_its_rows(bench: Bench) -> None:
    machine = await Machine.start(bench, scan_of(Table({1})))
    claim = await machine.claim()
    death = RowDeath(
        id="row", group="scan:orders:0", fence=claim.fence - 1, packed=b'["t","",null,null]\n',
        type="t", scope=scope_of("orders"), reason="r", kind="k", errors=[], attempts=1,
    )  # fmt: skip
    assert not await death.bury(bench.client)
    assert await machine.settle(claim, await machine.outcome(claim))
    assert not await death.bury(bench.client)


@pytest.mark.parametrize("key", [object(), "x" * 300])
def test_a_key_that_can_not_be_kept(key: object) -> None:
    with pytest.raises(ValueError, match="a row's key"):
        text_of_key(key)
