"""Daemons that are only slow: their tasks are taken over, and none of them dies of it."""

from __future__ import annotations

import signal

import pytest

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig

TIMES = 5  # more than `max_crashes`


def counted(rig: Rig, id_: str) -> tuple[int, int]:
    """Crashes and lost leases of a task, as an operator sees them."""
    told = rig.ask("task", id_)
    return told["crashes"], told["lost_leases"]


def stop_past_its_lease(rig: Rig, daemon: Process, times: int) -> None:
    """Stop a daemon until the others have all that it held; let it come back."""
    daemon.send(signal.SIGSTOP)
    rig.until(lambda: not is_known(rig, daemon), "the end of its lease")
    daemon.send(signal.SIGCONT)
    daemon.wait_for("session.lost", times=times)
    rig.until(lambda: is_known(rig, daemon), "its next session")


def is_known(rig: Rig, daemon: Process) -> bool:
    return rig.raw.zscore(rig.keys("daemons"), daemon.name) is not None


def test_stopping_each_holder_costs_no_task_its_life(make_rig: MakeRig) -> None:
    """Again and again, whichever daemon has them: grouped and plain ones."""
    rig = make_rig(workers={"lease": short_lease()})
    daemons = {each.pid: each for each in (rig.start("d1"), rig.start("d2"))}
    facts = {"gate": str(rig.gate())}
    rig.publish([Job("a0", "a", facts=facts), Job("a1", "a", n=1), Job("p0", facts=facts)])
    stops = dict.fromkeys(daemons, 0)
    for time in range(1, TIMES + 1):
        holder = rig.wait_for_start("a0", times=time).pid
        stops[holder] += 1
        stop_past_its_lease(rig, daemons[holder], stops[holder])
    rig.wait_for_start("a0", times=TIMES + 1)
    assert counted(rig, "a0") == (0, TIMES)
    why = rig.ask("why", "a:42")
    assert (why["crashes"], why["lost_leases"]) == (0, TIMES)
    rig.gate().touch()
    rig.wait_for_all()
    rig.stop_all()
    assert rig.dead() == []
    assert counted(rig, "a0") == (0, TIMES)
    assert rig.judge(with_faults=True) == []


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
