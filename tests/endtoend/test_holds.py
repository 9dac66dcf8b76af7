"""What an operator holds back holds for what was claimed, too: a run ends with its task."""

from __future__ import annotations

import time

import pytest

from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig

HEARD = 0.1  # seconds, within which each daemon hears of it
HOLDS = {
    "pause": ("pause", "e:42"),
    "pause all": ("pause", "--all"),
    "limit": ("limit", "group", "e:42", "--rate", "1/h", "--for", "1h"),  # one at once
}
RELEASES = {
    "pause": ("resume", "e:42"),
    "pause all": ("resume", "--all"),
    "limit": ("limit", "group", "e:42", "--off"),
}


def act(rig: Rig, *words: str) -> None:
    said = rig.call(*words, "--config", str(rig.config))
    assert said.returncode == 0, said.stderr


def starts(rig: Rig) -> list[str]:
    return [event.id for event in rig.events("start")]


def let_go(rig: Rig) -> None:
    """Let the running task end, once each daemon has heard of what came meanwhile."""
    time.sleep(HEARD)
    rig.gate().touch()


@pytest.mark.parametrize("hold", HOLDS)
def test_no_more_of_a_run_begins(make_rig: MakeRig, hold: str) -> None:
    rig = make_rig(rule={"run": 8})
    rig.start("d1")
    jobs = [Job(f"t{n}", "e", facts={} if n else {"gate": str(rig.gate())}) for n in range(8)]
    rig.publish(jobs)
    rig.wait_for_start("t0")
    act(rig, *HOLDS[hold])
    let_go(rig)
    rig.until(lambda: rig.count("running_grouped") == 0, "the end of what runs")
    assert starts(rig) == (["t0", "t1"] if hold == "limit" else ["t0"])
    act(rig, *RELEASES[hold])
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=False) == []


def test_an_older_task_that_is_redriven_goes_before_the_rest(make_rig: MakeRig) -> None:
    rig = make_rig(rule={"run": 8})
    rig.start("d1")
    rig.publish([Job("old", "e", type="fail")])
    rig.until(lambda: rig.dead() == ["old"], "a letter")
    rig.publish(Job(f"t{n}", "e", facts={} if n else {"gate": str(rig.gate())}) for n in range(8))
    rig.wait_for_start("t0")
    act(rig, "dead", "redrive", "old")
    let_go(rig)
    rig.until(lambda: rig.count("done") == 8, "the end of the others")
    assert starts(rig) == ["old", "t0", "old", *(f"t{n}" for n in range(1, 8))]
    rig.stop_all()
