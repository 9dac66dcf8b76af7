"""A drained group, seen from outside: one task tells of it, whatever dies."""

from __future__ import annotations

import orjson

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job


def test_one_task_tells_of_it_though_daemons_die(make_rig: MakeRig) -> None:
    """One in the group's first task, and one in the very task that tells."""
    rig = make_rig(workers={"lease": short_lease()}, rule={"on_drained": "drained"})
    first = rig.start("d1")
    held = Job("a0", "a", facts={"gate": str(rig.gate()), "gate_once": True})
    rig.publish(
        [held, Job("a1", "a", type="scripted", facts={"do": {"": ["dead no"]}}), Job("a2", "a")]
    )
    rig.wait_for_starts("a0")
    second = rig.start("d2")
    rig.kill(first)
    rig.until(lambda: rig.count("drained") == 1, "the group to be drained")
    rig.until(lambda: any(e.id.startswith("drained:") for e in rig.events("start")), "its task")
    rig.start("d1")
    rig.kill(second)
    rig.until(lambda: bool(rig.events("end")) and rig.count("done") == 3, "its end")
    told = orjson.loads(rig.journal.path.with_name("drained").read_bytes())
    ids = {event.id for event in rig.events("start") if event.id.startswith("drained:a:42:")}
    assert (len(ids), rig.count("drained")) == (1, 1)
    assert told["group"] == "a:42"
    assert (told["done"], told["dead"], told["first_at"] <= told["last_at"]) == (2, 1, True)
    rig.end(4, with_faults=True)
