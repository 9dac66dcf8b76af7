"""One namespace over several partitions, served by daemons that work for all of them."""

from __future__ import annotations

from collections import Counter

import pytest

from groupflow.store.partitions import partition_of
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job
from tests.endtoend.test_order import mixed


@pytest.mark.parametrize("order", ["oldest", "fair"])
def test_all_that_holds_for_one_holds_for_four(make_rig: MakeRig, order: str) -> None:
    """Order, no overlap, nothing lost, nothing twice; each task where its group's hash says."""
    rig = make_rig(redis={"partitions": 4}, workers={"order": order})
    daemons = rig.start_all("d1", "d2", "d3")
    jobs = mixed(600, seed=14)
    rig.publish(jobs[:400])
    rig.publish(jobs[300:])
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=False) == []
    runs = Counter(event.pid for event in rig.events("start"))
    assert set(runs) == {daemon.pid for daemon in daemons}
    assert rig.count("duplicates") == 100
    taken = [int(rig.raw.hget(keys("count"), "done") or 0) for keys in rig.partitions]
    places = Counter(partition_of(job.group, job.id, 4) for job in jobs)
    assert taken == [places[n] for n in range(4)]


def test_a_daemon_that_is_killed_leaves_nothing_in_any_partition(make_rig: MakeRig) -> None:
    rig = make_rig(redis={"partitions": 4}, workers={"lease": 2.0})
    first, _ = rig.start_all("d1", "d2")
    gate = rig.gate()
    held = [Job(f"h{n}", f"e{n}", n=n, facts={"gate": str(gate)}) for n in range(12)]
    rig.publish(held)
    rig.until(lambda: len(rig.events("start")) >= 12, "twelve starts")
    rig.kill(first)
    gate.touch()
    rig.publish(mixed(200, seed=15))
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_another_number_is_refused(make_rig: MakeRig) -> None:
    rig = make_rig(redis={"partitions": 4})
    rig.start("d1")
    rig.stop_all()
    rig.configure(redis={"partitions": 8})
    refused = rig.spawn("d2")
    assert refused.wait() == 78
    assert "has 4: set it to 4" in refused.tail()
