"""What an operator holds back, or lets run by a reload, holds for what was claimed, too."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig

# Each: how it begins, how it ends, and what may begin of a run meanwhile.
LIMIT = ("limit", "group", "e:42")
HOLDS = {
    "pause": (("pause", "e:42"), ("resume", "e:42"), ["t0"]),
    "pause all": (("pause", "--all"), ("resume", "--all"), ["t0"]),
    "limit": ((*LIMIT, "--rate", "1/h", "--for", "1h"), (*LIMIT, "--off"), ["t0", "t1"]),
}


def starts(rig: Rig) -> list[str]:
    return [event.id for event in rig.events("start")]


def has_heard(daemon: Process, event: str) -> bool:
    return any("another" in each.values() for each in daemon.events(event))


def let_go(rig: Rig, daemon: Process) -> None:
    """Let the running task end, once the daemon has heard of what came meanwhile.

    It hears in order: so once it has heard of another group's limit, which its log tells and which
    holds nothing of this one back, as a tenant's would.
    """
    began, ended = ("--rate", "1/h", "--for", "1h"), ("--off",)
    for words, event in ((began, "limit.began"), (ended, "limit.ended")):
        rig.say("limit", "group", "another", *words)
        rig.until(partial(has_heard, daemon, event), event)
    rig.gate().touch()


def held_run(rig: Rig) -> None:
    """Eight tasks of a run, of which the first waits at the gate."""
    rig.publish(Job(f"t{n}", "e", facts={} if n else {"gate": str(rig.gate())}) for n in range(8))
    rig.wait_for_start("t0")


@pytest.mark.parametrize("hold", HOLDS)
def test_no_more_of_a_run_begins(make_rig: MakeRig, hold: str) -> None:
    rig = make_rig(rule={"run": 8})
    daemon = rig.start("d1")
    held_run(rig)
    begin, end, begun = HOLDS[hold]
    rig.say(*begin)
    let_go(rig, daemon)
    rig.until(lambda: rig.count("running_grouped") == 0, "the end of what runs")
    assert starts(rig) == begun
    rig.say(*end)
    rig.end(with_faults=False)


def test_an_older_task_that_is_redriven_goes_before_the_rest(make_rig: MakeRig) -> None:
    rig = make_rig(rule={"run": 8})
    daemon = rig.start("d1")
    rig.publish([Job("old", "e", type="fail")])
    rig.until(lambda: rig.dead() == ["old"], "a letter")
    held_run(rig)
    rig.say("dead", "redrive", "old")
    let_go(rig, daemon)
    rig.until(lambda: rig.count("done") == 8, "the end of the others")
    assert starts(rig) == ["old", "t0", "old", *(f"t{n}" for n in range(1, 8))]
    rig.stop_all()


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
