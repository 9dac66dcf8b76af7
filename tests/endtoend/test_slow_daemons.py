"""Daemons that are only slow: their tasks are taken over, and none of them dies of it."""

from __future__ import annotations

import pytest

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig


def counted(rig: Rig, id_: str) -> tuple[int, int]:
    """Crashes and lost leases of a task, as an operator sees them."""
    told = rig.ask("task", id_)
    return told["crashes"], told["lost_leases"]


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_daemon_that_was_killed_has_died(make_rig: MakeRig, comes_back: bool) -> None:
    """Known ten leases later, or once its name comes back; its task runs meanwhile, undisturbed."""
    rig = make_rig(workers={"lease": short_lease()})
    daemon = rig.start("d1")
    rig.publish([Job("a0", "a", facts={"gate": str(rig.gate())})])
    rig.wait_for_start("a0")
    other = rig.start("d2")
    rig.kill(daemon)
    assert rig.wait_for_start("a0", times=2).pid == other.pid
    assert counted(rig, "a0") == (0, 1)
    if comes_back:
        rig.start("d1")
        assert counted(rig, "a0") == (1, 0)
    rig.until(lambda: counted(rig, "a0") == (1, 0), "the death of the daemon")
    rig.gate().touch()
    rig.end(with_faults=True)
    assert len(rig.events("start", "a0")) == 2
