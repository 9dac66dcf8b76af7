"""Who wakes a scan finds it awake: nothing that was written before is slept through."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.core.outcome import Done
from tests.scans.machine import Machine
from tests.scans.table import Table, scan_of
from tests.store.bench import Bench, arrival
from tests.store.task_state import pass_time


async def test_a_wake_ends_the_sleep(bench: Bench) -> None:
    table = Table()
    machine = await Machine.start(bench, scan_of(table, shards=3, idle=3600.0))
    await machine.until_asleep()
    table.open = {1, 2, 3}
    assert await machine.shards.wake("orders")
    await machine.until_asleep()
    assert sorted(table.done) == [1, 2, 3]


async def test_a_wake_during_the_last_fetch_is_not_lost(bench: Bench) -> None:
    table = Table()
    machine = await Machine.start(bench, scan_of(table, idle=3600.0))
    claim = await machine.claim()
    outcome = await machine.outcome(claim)  # it has seen an empty table
    table.open = {1}
    await machine.shards.wake("orders")
    assert await machine.settle(claim, outcome)
    await machine.until_asleep()
    assert table.done == [1]
    assert await machine.turn() is None  # one wake, one sleep less


async def test_the_application_wakes_it(bench: Bench) -> None:
    table = Table()
    scan = scan_of(table, idle=3600.0)
    with pytest.raises(RuntimeError, match="no daemon runs the scan 'orders'"):
        await scan.wake()
    machine = await Machine.start(bench, scan)
    await machine.until_asleep()
    async with machine.shards.running():
        table.open = {1}
        await scan.wake()
    await machine.until_asleep()
    assert table.done == [1]
    with pytest.raises(RuntimeError):
        await scan.wake()


async def test_a_message_wakes_it(bench: Bench) -> None:
    table = Table()
    machine = await Machine.start(bench, scan_of(table, idle=3600.0))
    await machine.until_asleep()
    table.open = {1}
    assert await machine.outcome(await _message(machine)) == Done()


async def _message(machine: Machine, **body: Any) -> Any:
    """A claimed message of the scan's type, in a group of its own."""
    envelope = arrival("m", "letters").envelope
    envelope.type, envelope.body = "scan:orders", orjson.dumps(body)
    await machine.bench.enqueue(type(arrival("m"))("m", envelope))
    return await machine.claim()


@pytest.mark.parametrize("token", [None, "", "0" * 32])
async def test_no_message_is_taken_for_a_shard(bench: Bench, token: str | None) -> None:
    """Whatever it says of itself: it doesn't know the scan's token."""
    table = Table({1, 2, 3})
    machine = await Machine.start(bench, scan_of(table))
    await machine.until_asleep()
    table.open = {4}
    record = await machine.record()
    claim = await _message(
        machine, scan="orders", shard=0, of=1, generation=record.generation, token=token
    )
    assert await machine.outcome(claim) == Done()
    assert table.open == {4}


async def test_a_shard_waits_for_a_daemon_that_has_its_scan(bench: Bench) -> None:
    table = Table({1})
    machine = await Machine.start(bench, scan_of(table))
    other = await Machine.start(bench, name="d2")
    await other.turn()
    assert table.done == []
    await pass_time(bench)
    await machine.until_asleep()
    assert table.done == [1]


async def test_the_shards_of_a_dropped_scan_end(bench: Bench) -> None:
    machine = await Machine.start(bench, scan_of(Table(), shards=2))
    await machine.until_asleep()
    assert await machine.shards.records.drop("orders")
    assert not await machine.shards.records.drop("orders")
    assert await machine.round() == 2
    assert bench.count("queued_grouped") == 0


async def test_a_scan_that_redis_has_lost_is_made_anew(bench: Bench) -> None:
    table = Table({1})
    machine = await Machine.start(bench, scan_of(table))
    await machine.until_asleep()
    await machine.shards.records.drop("orders")
    await machine.round()
    table.open = {2}
    await machine.shards.keep()
    await machine.until_asleep()
    assert table.done == [1, 2]
