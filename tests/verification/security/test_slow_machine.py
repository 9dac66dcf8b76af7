"""A machine without time for its daemons: leases end by the dozen, and no task dies of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import deadline
from tests.endtoend.conftest import MakeRig
from tests.endtoend.conftest import make_rig as make_rig  # noqa: PLC0414  a fixture of this file
from tests.endtoend.process import Process
from tests.endtoend.rig import Job

BUSY = 40  # processes that compute, at the priority of everything else
SECONDS = 40  # for so long
LOWEST = 19
JOBS = 60
LOOP = f"import time\nend = time.monotonic() + {SECONDS}\nwhile time.monotonic() < end: pass"


def make_last(daemon: Process) -> None:
    """All of its threads get what time is left by everybody else."""
    for thread in Path(f"/proc/{daemon.pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), LOWEST)


@pytest.mark.timeout(600)
def test_a_busy_machine_costs_no_task_its_life(make_rig: MakeRig) -> None:
    """Three daemons beside forty busy processes lose their leases; all of them live on."""
    rig = make_rig(workers={"lease": 3.0, "plain": 4, "grouped": 4})
    daemons = [rig.start(f"d{n}") for n in range(3)]
    for daemon in daemons:
        make_last(daemon)
    rig.publish(
        Job(f"t{n}", f"g{n % 12}" if n % 3 else None, n=n, facts={"ms": 1000}) for n in range(JOBS)
    )
    busy = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(BUSY)]
    for each in busy:
        assert each.wait(timeout=5 * deadline() + SECONDS) == 0
    rig.wait_for_all()
    assert rig.dead() == []
    lost = sum(len(daemon.events("session.lost")) for daemon in daemons)
    assert lost > 0, "or this has shown nothing"
    assert all(daemon.is_running for daemon in daemons)
    rig.stop_all()
    assert rig.judge(with_faults=True) == []
