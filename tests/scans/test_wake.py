"""Who wakes a scan finds it awake: nothing that was written before is slept through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from groupflow.cli.exits import Exit
from groupflow.core.outcome import Done
from groupflow.store.given import Claim
from tests.cli.verbs import Verbs
from tests.scans.machine import Machine, begin
from tests.scans.table import Table, scan_of
from tests.store.bench import Bench, arrival


async def _message(machine: Machine, **body: Any) -> Claim:
    """A claimed message of the scan's type, in a group of its own."""
    one = arrival("m", "letters")
    one.envelope.type, one.envelope.body = "scan:orders", orjson.dumps(body)
    await machine.bench.enqueue(one)
    return await machine.claim()


async def test_a_wake_during_the_last_fetch_is_not_lost(bench: Bench) -> None:
    table, machine = await begin(bench, idle=3600.0)
    claim = await machine.claim()
    outcome = await machine.outcome(claim)  # it has seen an empty table
    table.open = {1}
    await machine.shards.wake("orders")
    assert await machine.settle(claim, outcome)
    await machine.work_off()
    assert table.done == [1]
    assert await machine.turn() is None  # one wake, one sleep less


async def test_the_application_wakes_it(bench: Bench) -> None:
    table = Table()
    scan = scan_of(table, idle=3600.0)
    with pytest.raises(RuntimeError, match="no daemon runs the scan 'orders'"):
        await scan.wake()
    machine = await Machine.start(bench, scan)
    await machine.work_off()
    async with machine.shards.running():
        table.open = {1}
        await scan.wake()
    await machine.work_off()
    assert table.done == [1]
    with pytest.raises(RuntimeError):
        await scan.wake()


SHARD = {"scan": "orders", "shard": 0, "of": 1, "generation": 1}


@pytest.mark.parametrize("said", [{}, *({**SHARD, "token": each} for each in (None, "", "0" * 32))])
async def test_a_message_wakes_it_and_is_never_taken_for_a_shard(
    bench: Bench, said: dict[str, Any]
) -> None:
    """Whatever it says of itself: it doesn't know the scan's token."""
    table, machine = await begin(bench, idle=3600.0)
    await machine.work_off()
    assert (await machine.record()).generation == SHARD["generation"]
    table.open = {1}
    claim = await _message(machine, **said)
    assert await machine.outcome(claim) == Done()
    assert table.done == []
    await machine.work_off()
    assert table.done == [1]
    await machine.daemon.complete(claim)


async def test_the_shards_of_a_dropped_scan_end_and_are_made_anew(bench: Bench) -> None:
    """Made anew by a daemon that has the scan, as where Redis has lost it."""
    table, machine = await begin(bench, {1}, shards=2)
    await machine.work_off()
    assert await machine.shards.records.drop("orders")
    assert not await machine.shards.records.drop("orders")
    assert await machine.round() == 2
    assert bench.count("queued_grouped") == 0
    table.open = {2}
    await machine.shards.keep()
    await machine.work_off()
    assert table.done == [1, 2]


async def test_the_verbs(bench: Bench, tmp_path: Path) -> None:
    groupflow = Verbs(tmp_path, bench.url, bench.keys.namespace)
    assert "no daemon has had a scan" in (await groupflow("scans")).out
    assert (await groupflow("scans", "wake", "orders")).exit == Exit.FAILED
    table, machine = await begin(bench, {1, 2}, shards=4, idle=3600.0)
    await machine.work_off()
    assert (await groupflow("why", "scan:orders:1", "--json")).json["state"] == "delayed"
    told = (await groupflow("status", "--json")).json["grouped"]
    assert (told["queued"], told["asleep"]) == (4, 4)
    shown = (await groupflow("scans", "show", "orders")).out
    assert (shown.count("scan:orders:"), "asleep for another" in shown) == (4, True)
    assert "orders" in (await groupflow("scans")).out
    table.open = {3}
    assert (await groupflow("scans", "wake", "orders")).exit == Exit.FINE
    await machine.work_off()
    (story,) = (await groupflow("scans", "--json")).json
    assert (story["rows_done"], story["idle"], table.done) == (3, 4, [1, 2, 3])
    assert (await groupflow("scans", "drop", "orders")).exit == Exit.FINE
    assert (await groupflow("scans", "--json")).json == []
