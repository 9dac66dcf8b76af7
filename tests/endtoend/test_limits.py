"""The limit of a group, by a reload of a real daemon."""

from __future__ import annotations

import signal

from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig


def hot(rig: Rig, number: int, gate: str = "gate", **facts: object) -> list[Job]:
    """Tasks of one group that wait for a gate."""
    held = {"gate": str(rig.gate(gate)), **facts}
    return [Job(f"{gate}{n}", "hot", n=n, facts=held) for n in range(number)]


def running(rig: Rig) -> int:
    """How many attempts have begun and not ended."""
    return len(rig.events("start")) - len(rig.events("end"))


def test_more_of_a_group_run_and_then_fewer(make_rig: MakeRig) -> None:
    """By a reload at once, and when enough have ended; a run that is under way gives way first."""
    sections = {"rule": {"run": 4}, "workers": {"grouped": 8}}
    rig = make_rig(**sections)
    daemon = rig.start("d1")
    rig.publish(hot(rig, 8))
    rig.wait_for_start("gate0")
    rig.configure(**sections | {"rule": {"concurrency": 4}})
    daemon.send(signal.SIGHUP)
    daemon.wait_for("config.reloaded")
    rig.publish(hot(rig, 8, "second"))
    rig.gate().touch()
    rig.until(lambda: running(rig) == 4, "four of the second half to run")
    told = rig.ask("why", "hot:42")
    assert (told["state"], told["running"], told["concurrency"]) == ("running", 4, 4)
    rig.configure(**sections)
    daemon.send(signal.SIGHUP)
    daemon.wait_for("config.reloaded", 2)
    rig.gate("second").touch()
    rig.end(with_faults=False)
