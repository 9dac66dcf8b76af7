"""One namespace over several partitions, served by daemons that work for all of them."""

from __future__ import annotations

import signal

from groupflow.store.keys import Keys
from groupflow.store.partitions import keys_of
from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.test_order import mixed


def test_who_sleeps_while_a_namespace_is_moved_writes_nothing(make_rig: MakeRig) -> None:
    """A frozen daemon has messages in hand; it wakes, is told, and they come to who runs now."""
    rig = make_rig(redis={"partitions": 2}, workers={"lease": short_lease(2.0)})
    sleeper = rig.start("d1")
    jobs = mixed(120, seed=16)
    rig.publish(jobs[:40])
    rig.wait_for_all()
    sleeper.send(signal.SIGSTOP)
    rig.publish(jobs[40:])

    def is_moved() -> bool:
        return rig.call("repartition", "1", "--config", str(rig.config)).returncode == 0

    rig.until(is_moved, "the move, behind its lease")
    sleeper.send(signal.SIGCONT)
    assert sleeper.wait() == 78
    assert "has 1: set it to 1" in sleeper.tail()
    old = rig.partitions
    rig.configure(redis={"partitions": 1}, workers={"lease": short_lease(2.0)})
    rig.partitions = keys_of(rig.keys.namespace, 1)
    rig.start("d2")
    rig.end(with_faults=True)
    assert rig.raw.exists(*(keys(kind) for keys in old for kind in ("tasks", "daemons"))) == 0


def test_the_node_that_knows_the_number_is_needed_once(make_rig: MakeRig) -> None:
    """From then on each partition tells; another number is refused."""
    rig = make_rig(redis={"partitions": 2})
    rig.start("d1")
    rig.stop_all()
    rig.configure(redis={"partitions": 8})
    refused = rig.spawn("d2")
    assert refused.wait() == 78
    assert "has 2: set it to 2" in refused.tail()
    rig.configure(redis={"partitions": 2})
    common = Keys(rig.keys.namespace)("partitions")
    rig.raw.delete(common)
    rig.start("d2")
    rig.publish(mixed(40, seed=17))
    rig.wait_for_all()
    rig.stop_all()
    assert rig.raw.exists(common) == 0
    assert rig.judge(with_faults=False) == []
