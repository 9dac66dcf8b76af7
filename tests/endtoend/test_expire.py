"""Tasks that have to start in time, seen from outside: they end unstarted, whatever dies."""

from __future__ import annotations

import time

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job


def test_what_starts_late_never_starts(make_rig: MakeRig) -> None:
    """By its rule or its header, behind a task that its daemon's death repeats."""
    rig = make_rig(workers={"lease": short_lease()}, rule={"expires": 600.0})
    daemons = rig.start_all("d1", "d2")
    gate = {"gate": str(rig.gate())}
    soon = {"x-expires": 1}
    rig.publish(
        [
            Job("a0", "a", facts={**gate, "gate_once": True}),
            Job("a1", "a", headers=soon),
            Job("a2", "a"),
            Job("a3", "a", headers=soon),
        ]
    )
    rig.wait_for_start("a0")
    rig.until(lambda: rig.count("expired") == 2, "the end of a1 and a3")
    told = rig.say("task", "a3")
    assert "expired: it had to start by" in told
    rig.until(
        lambda: sum(told["count"] for d in daemons for told in d.events("task.expired")) == 2,
        "the log's word of both",
    )

    rig.publish([Job("a4", "a", headers=soon), Job("p0", facts={**gate, "gate_once": True})])
    rig.wait_for_start("p0")
    for daemon in daemons:
        rig.kill(daemon)
    late = rig.raw.zscore(rig.keys("expiring"), "a4")
    rig.until(lambda: late is None or late < time.time() * 1e6, "the time of a4")
    rig.start_all("d3", "d4")
    rig.end(with_faults=True)
    starts = {id_: len(rig.events("start", id_)) for id_ in rig.jobs}
    assert starts == {"a0": 2, "a1": 0, "a2": 1, "a3": 0, "a4": 0, "p0": 2}
    assert rig.count("expired") == 3
