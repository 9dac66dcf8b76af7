"""Three daemons, several hundred tasks, no faults: nothing lost, nothing twice, order kept."""

from __future__ import annotations

import random
from collections import Counter

from tests.endtoend.rig import Job, Rig


def mixed(tasks: int, seed: int) -> list[Job]:
    """Tasks of a hot group, of many others, of several tenants, and plain ones, well mixed."""
    dice = random.Random(seed)
    jobs = []
    for n in range(tasks):
        entity = dice.choice([None, "hot", "contact", "invoice", "line:item", "租户"])
        tenant = dice.choice([1, 42, 43]) if entity != "hot" else 7
        facts = {"ms": dice.choice([0, 0, 1, 5])}
        type_ = dice.choice(["work", "work", "thread"])
        jobs.append(Job(f"t{n}", entity, tenant, n, type_, facts))
    return jobs


def test_three_daemons(rig: Rig) -> None:
    """Per-group order and exclusion over three daemons; what is published twice runs once."""
    daemons = rig.start_all("d1", "d2", "d3")
    jobs = mixed(600, seed=1)
    rig.publish(jobs[:400])
    rig.publish(jobs[300:400])
    rig.publish([*jobs[350:450], *jobs[450:]])
    rig.end(with_faults=False)
    runs = Counter(event.pid for event in rig.events("start"))
    assert set(runs) == {daemon.pid for daemon in daemons}, "some daemon had nothing to do"
    assert rig.left_in_queue() == 0
    assert rig.count("duplicates") >= 150  # more where a busy machine lost a connection
