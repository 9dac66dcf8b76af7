"""What an operator holds back holds for what was claimed, too: a run ends with its task."""

from __future__ import annotations

import pytest

from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig

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


def starts(rig: Rig) -> list[str]:
    return [event.id for event in rig.events("start")]


def let_go(rig: Rig, daemon: Process) -> None:
    """Let the running task end, once the daemon has heard of what came meanwhile.

    It hears in order: so once it has heard of another limit, which its log tells.
    """
    for words, event in (
        (("--rate", "1/h", "--for", "1h"), "limit.began"),
        (("--off",), "limit.ended"),
    ):
        rig.say("limit", "tenant", "another", *words)
        rig.until(
            lambda event=event: any("another" in each.values() for each in daemon.events(event)),  # type: ignore[misc]
            event,
        )
    rig.gate().touch()


@pytest.mark.parametrize("hold", HOLDS)
def test_no_more_of_a_run_begins(make_rig: MakeRig, hold: str) -> None:
    rig = make_rig(rule={"run": 8})
    daemon = rig.start("d1")
    jobs = [Job(f"t{n}", "e", facts={} if n else {"gate": str(rig.gate())}) for n in range(8)]
    rig.publish(jobs)
    rig.wait_for_start("t0")
    rig.say(*HOLDS[hold])
    let_go(rig, daemon)
    rig.until(lambda: rig.count("running_grouped") == 0, "the end of what runs")
    assert starts(rig) == (["t0", "t1"] if hold == "limit" else ["t0"])
    rig.say(*RELEASES[hold])
    rig.end(with_faults=False)


def test_an_older_task_that_is_redriven_goes_before_the_rest(make_rig: MakeRig) -> None:
    rig = make_rig(rule={"run": 8})
    daemon = rig.start("d1")
    rig.publish([Job("old", "e", type="fail")])
    rig.until(lambda: rig.dead() == ["old"], "a letter")
    rig.publish(Job(f"t{n}", "e", facts={} if n else {"gate": str(rig.gate())}) for n in range(8))
    rig.wait_for_start("t0")
    rig.say("dead", "redrive", "old")
    let_go(rig, daemon)
    rig.until(lambda: rig.count("done") == 8, "the end of the others")
    assert starts(rig) == ["old", "t0", "old", *(f"t{n}" for n in range(1, 8))]
    rig.stop_all()
