"""Another number of shards: the old ones end, then new ones start; nothing missed or twice."""

from __future__ import annotations

import random

import pytest

from groupflow import Scan
from tests.scans.machine import Machine
from tests.scans.table import Table, scan_of
from tests.store.bench import Bench


async def _change(bench: Bench, scan: Scan, name: str = "d2") -> Machine:
    """A daemon of newer code begins."""
    return await Machine.start(bench, scan, name=name)


async def _settle_down(machine: Machine, rounds: int = 8) -> None:
    for _ in range(rounds):
        await machine.round()
        await machine.shards.keep()


@pytest.mark.parametrize(("old", "new"), [(2, 5), (5, 2), (1, 3), (3, 1)])
async def test_rows_with_a_status(bench: Bench, old: int, new: int) -> None:
    table = Table(set(range(200)))
    machine = await Machine.start(bench, scan_of(table, shards=old))
    for _ in range(old):
        await machine.turn()
    machine = await _change(bench, scan_of(table, shards=new))
    await _settle_down(machine)
    assert sorted(table.done) == list(range(200))
    record = await machine.record()
    assert (record.count, record.generation, record.closing) == (new, 2, False)
    assert bench.count("queued_grouped") == new


@pytest.mark.parametrize("seed", range(8))
async def test_rows_behind_a_cursor(bench: Bench, seed: int) -> None:
    """However far each shard was, and however often it changes."""
    chance = random.Random(seed)
    table = Table(set(range(300)))
    machine = await Machine.start(
        bench, scan_of(table, cursor=True, on_retry="hold", shards=chance.randint(1, 5))
    )
    for n in range(3):
        for _ in range(chance.randint(0, 12)):
            await machine.turn()
        shards = chance.randint(1, 5)
        scan = scan_of(table, cursor=True, on_retry="hold", shards=shards)
        machine = await _change(bench, scan, f"newer{n}")
    await _settle_down(machine, 20)
    assert sorted(table.done) == list(range(300))
    table.open |= {300, 301, 302}
    await machine.round()
    assert sorted(table.done) == list(range(303))


async def test_old_shards_end_before_new_ones_start(bench: Bench) -> None:
    table = Table(set(range(100)))
    machine = await Machine.start(bench, scan_of(table, cursor=True, on_retry="hold", shards=2))
    claim = await machine.claim()  # one is at work
    newer = await _change(bench, scan_of(table, cursor=True, on_retry="hold", shards=3))
    for _ in range(5):
        await newer.round()
    assert (await newer.record()).generation == 1
    assert {shard.count for shard in table.pages} <= {2}
    assert await machine.settle(claim, await machine.outcome(claim))
    await _settle_down(newer, 12)
    assert sorted(table.done) == list(range(100))
    assert (await newer.record()).count == 3


async def test_what_failed_is_known_to_the_new_shards(bench: Bench) -> None:
    table = Table(set(range(20)), broken=lambda row: row in (3, 8))
    machine = await Machine.start(bench, scan_of(table, shards=2, max_attempts=2))
    await machine.until_asleep()
    await machine.round()
    dead = machine.measures["orders"].dead
    assert dead == 2
    machine = await _change(bench, scan_of(table, shards=3, max_attempts=2))
    table.pages.clear()
    await _settle_down(machine)
    assert all(set(shard.skip) == {3, 8} for shard in table.pages if shard.count == 3)
    assert machine.measures["orders"].dead == 0
    assert len(table.done) == len(set(table.done)) == 18


async def test_a_change_that_is_taken_back_meanwhile(bench: Bench) -> None:
    table = Table(set(range(30)))
    machine = await Machine.start(bench, scan_of(table, shards=2))
    await _change(bench, scan_of(table, shards=3), "d2")
    machine = await _change(bench, scan_of(table, shards=2), "d3")
    await _settle_down(machine)
    record = await machine.record()
    assert (record.count, record.closing) == (2, False)
    assert sorted(table.done) == list(range(30))


async def test_a_crash_while_it_changes(bench: Bench) -> None:
    """Whoever reports twice, or begins the next generation twice, changes nothing."""
    table = Table(set(range(30)))
    machine = await Machine.start(bench, scan_of(table, shards=2))
    await machine.until_asleep()
    newer = await _change(bench, scan_of(table, shards=3))
    bench.with_faults = True
    await newer.wake_up()
    claims = await newer.daemon.claim("grouped", "w1", "w2")
    for claim in claims:
        await newer.outcome(claim)  # the last of them begins the next generation
    assert (await newer.record()).generation == 2
    bench.expire("d2")
    heir = await _change(bench, scan_of(table, shards=3), "d3")
    await heir.daemon.sessions.reap()
    await _settle_down(heir)
    assert (await heir.record()).generation == 2
    assert bench.count("queued_grouped") == 3
    assert sorted(table.done) == list(range(30))
