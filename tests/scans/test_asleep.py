"""A shard that sleeps is a queued task, and looks like no backlog."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tasks import Tasks
from groupflow.operate.totals import read_totals
from groupflow.ops.metrics import from_totals
from tests.scans.machine import GROUP, Machine, begin
from tests.store.bench import Bench, arrival


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
