"""Another number of shards: the old ones end, then new ones start; nothing missed or twice."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.scans.machine import Machine, begin
from tests.scans.table import scan_of
from tests.store.bench import Bench

CURSOR: dict[str, Any] = {"cursor": True, "on_retry": "hold"}


@pytest.mark.parametrize("facts", [{}, CURSOR])
@pytest.mark.parametrize("seed", range(3))
async def test_no_row_is_missed_or_done_twice(
    bench: Bench, seed: int, facts: dict[str, Any]
) -> None:
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


async def test_a_crash_while_it_changes(bench: Bench) -> None:
    """Whoever reports twice, or begins the next generation twice, changes nothing."""
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
