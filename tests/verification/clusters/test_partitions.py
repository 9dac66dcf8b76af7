"""One namespace over several partitions, served by daemons that work for all of them."""

from __future__ import annotations

from groupflow.store.keys import Keys
from tests.endtoend.conftest import MakeRig
from tests.endtoend.streams import mixed


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
