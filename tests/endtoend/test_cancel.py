"""A message cancels tasks that wait and run, on daemons that die meanwhile."""

from __future__ import annotations

import pytest

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job


@pytest.mark.parametrize("partitions", [1, 3])
def test_no_crash_brings_a_cancelled_task_back(make_rig: MakeRig, partitions: int) -> None:
    """It holds its group until its attempt, or its daemon, has ended, and never runs again."""
    rig = make_rig(
        workers={"lease": short_lease()},
        redis={"partitions": partitions},
        rabbitmq={"partitions": partitions},
    )
    daemons = rig.start_all("d1", "d2")
    held = {"gate": str(rig.gate())}
    rig.publish(
        [
            Job("a0", "a", type="stubborn", facts=held),
            Job("b0", "b", facts={**held, "gate_once": True}),
            Job("p0", facts=held),
            *(Job(f"{group}{n}", group) for n in (1, 2) for group in "ab"),
        ]
    )
    rig.wait_for_starts("a0", "b0", "p0")
    rig.cancel("a0", "b1", "p0")
    assert rig.wait_for_end("p0").how == "cut"
    rig.until(lambda: rig.count("cancelled") == 2, "the ends of b1 and p0")
    asked = [rig.raw.hexists(keys("cancels"), "a0") for keys in rig.partitions]
    assert sum(asked) == 1
    assert rig.events("start", "a1") == []
    for daemon in daemons:
        rig.kill(daemon)
    rig.start_all("d3", "d4")
    rig.end(with_faults=True)
    assert rig.count("cancelled") == 3
    starts = {id_: len(rig.events("start", id_)) for id_ in rig.jobs}
    assert starts == {"a0": 1, "a1": 1, "a2": 1, "b0": 2, "b1": 0, "b2": 1, "p0": 1}
