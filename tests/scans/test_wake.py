"""A shard that sleeps is no backlog; who wakes a scan finds it awake: no row is slept through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from groupflow.cli.exits import Exit
from groupflow.core.outcome import Done
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Tasks
from groupflow.operate.totals import read_totals
from groupflow.ops.metrics import from_totals
from groupflow.store.given import Claim
from tests.cli.verbs import Verbs
from tests.scans.machine import GROUP, Machine, Table, begin, scan_of
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
async def test_a_message_wakes_it_and_is_never_a_shard(bench: Bench, said: dict[str, Any]) -> None:
    """It may say that it is a shard: it doesn't know the scan's token."""
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
    """Made again by a daemon that has the scan, as where Redis has lost it."""
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
    status = (await groupflow("status")).out
    assert "\ngrouped  0 " in status
    assert "asleep, beside the queued ones: 4 shards of scans" in status
    for verb, changed, held in (("pause", True, 4), ("pause", False, 4), ("resume", True, 0)):
        assert (await groupflow("scans", verb, "orders", "--json")).json["changed"] is changed
        shown = (await groupflow("scans", "show", "orders")).out
        assert shown.count("its group is paused") == held
        assert ("orders: 4 shards are stopped;" in (await groupflow("scans")).out) == bool(held)
    table.open = {3}
    assert (await groupflow("scans", "wake", "orders")).exit == Exit.FINE
    await machine.work_off()
    (story,) = (await groupflow("scans", "--json")).json
    assert (story["rows_done"], story["idle"], table.done) == (3, 4, [1, 2, 3])
    assert (await groupflow("scans", "drop", "orders")).exit == Exit.FINE
    assert (await groupflow("scans", "--json")).json == []


# A shard that sleeps is a queued task, and looks like no backlog


async def _counts(bench: Bench) -> tuple[int, int]:
    """Queued tasks of groups, and how many of them sleep."""
    found = await read_totals(bench.namespace)
    assert found.as_json()["grouped"]["asleep"] == found.asleep
    return found.queued_grouped, found.asleep


async def test_who_sleeps_counts_apart(bench: Bench) -> None:
    _, machine = await begin(bench, shards=3, idle=3600.0)
    assert await _counts(bench) == (3, 0)  # they wait for a worker
    await machine.turn()
    assert await _counts(bench) == (3, 1)
    await machine.work_off()
    await bench.enqueue(arrival("a", "g"))
    assert await _counts(bench) == (4, 3)
    totals = from_totals(await read_totals(bench.namespace))
    tasks = next(each for each in totals if each.name == "groupflow_cluster_tasks")
    states = {s.labels["state"]: s.value for s in tasks.samples if s.labels["pool"] == "grouped"}
    assert states == {"queued": 1, "asleep": 3, "running": 0}
    enqueued = await bench.enqueuer.enqueue([arrival("b", "g")])
    assert enqueued.queued == 2  # what intake's bound is about


@pytest.mark.parametrize("how", ["due", "woken", "run"])
async def test_whatever_ends_the_sleep_counts(bench: Bench, how: str) -> None:
    _, machine = await begin(bench, idle=3600.0)
    await machine.work_off()
    assert await _counts(bench) == (1, 1)
    id_ = (await machine.record()).id_of(0)
    match how:
        case "due":
            await machine.wake_up()
        case "woken":
            await machine.shards.wake("orders")
        case "run":
            assert await bench.client.run(OperatorVerb.RUN_NOW, id_, GROUP)
    assert await _counts(bench) == (1, 0)
    claim = await machine.claim()
    assert await _counts(bench) == (0, 0)
    assert await machine.settle(claim, await machine.outcome(claim))
    assert await _counts(bench) == (1, 1)
    await Tasks(bench.namespace).drop(id_)
    assert await _counts(bench) == (0, 0)


async def test_one_whose_scan_nobody_has_waits(bench: Bench) -> None:
    """And is claimed again once a daemon has it."""
    table, machine = await begin(bench, {1})
    await (await Machine.start(bench, name="other")).turn()
    assert (await _counts(bench), table.done) == ((1, 0), [])
    await machine.round()
    assert table.done == [1]
