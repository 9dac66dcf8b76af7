"""Daemons that die, freeze or are told to stop: nothing lost, order kept, nothing twice."""

from __future__ import annotations

import signal
import time

from groupflow.cli.exits import Exit
from groupflow.ops.signals import ECHO
from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig

LONG = {"lease": 3600.0}  # longer than any test's deadline: no daemon may have to wait for its end
HELD = ("a0", "b0", "p0")


def publish_held(rig: Rig, *, once: bool = True, type_: str = "work") -> None:
    """Two groups and plain tasks, each first one held at the gate; if `once`, until a crash."""
    facts = {"gate": str(rig.gate()), "gate_once": once}
    first = [Job(id_, None if id_ == "p0" else id_[0], type=type_, facts=facts) for id_ in HELD]
    rest = [Job(f"{group}{n}", group, n=n) for n in range(1, 4) for group in "ab"]
    rig.publish([*first, *rest, *(Job(f"p{n}", n=n) for n in range(1, 4))])
    rig.wait_for_starts(*HELD)


def crashes_of(rig: Rig, id_: str) -> list[int]:
    """What each run of a task was told of crashes before it."""
    return [event.crashes for event in rig.events("start", id_)]


def test_a_zombies_tasks_are_lost_to_it(make_rig: MakeRig) -> None:
    """Threads go on, though their daemon was frozen past its lease: what they tell is refused."""
    rig = make_rig(workers={"lease": short_lease()})
    zombie = rig.start("zombie")
    publish_held(rig, type_="thread")
    other = rig.start("other")
    zombie.send(signal.SIGSTOP)
    rig.wait_for_all()
    zombie.send(signal.SIGCONT)
    zombie.wait_for("session.lost")
    rig.gate().touch()
    zombie.wait_for("claim.lost", times=3)
    for id_ in HELD:
        ends = [(event.how, event.pid) for event in rig.events("end", id_)]
        assert ends == [("done", other.pid), ("done", zombie.pid)]
    assert rig.count("done") == len(rig.jobs)
    rig.end(with_faults=True)


def test_two_daemons_of_one_name(make_rig: MakeRig) -> None:
    """The later one leaves with 78 and says why; once the first is dead, it takes up at once."""
    rig = make_rig(workers=LONG)
    first = rig.start("d1")
    publish_held(rig)
    second = rig.spawn("d1")
    assert second.wait() == Exit.CONFIG
    assert f"named 'd1' runs already, pid {first.pid} on" in second.tail()
    rig.kill(first)
    rig.start("d1")
    rig.gate().touch()
    rig.wait_for_all()
    assert [crashes_of(rig, id_) for id_ in HELD] == [[0, 1]] * 3
    rig.end(with_faults=True)


def test_stop_lets_running_tasks_end(make_rig: MakeRig) -> None:
    """SIGTERM: what runs may end, nothing new begins, and the daemon leaves with 0."""
    rig = make_rig(workers=LONG)
    daemon = rig.start("d1")
    publish_held(rig, once=False)
    rig.until(lambda: rig.is_over(3), "the free plain tasks")
    for _ in range(3):  # as `timeout` and supervisors send it: twice and more, which is one wish
        daemon.send(signal.SIGTERM)
    daemon.wait_for("intake.stopped")
    rig.until(lambda: rig.ask("status")["daemons"][0]["draining"], "what it tells")
    rig.gate().touch()
    assert daemon.wait() == Exit.FINE
    assert [event.how for event in rig.events("end", "a0")] == ["done"]
    assert rig.events("start", "a1") == []
    assert rig.count("queued_grouped") == 6
    rig.start("d2")
    rig.end(with_faults=False)


def test_stop_hands_back_what_does_not_end(make_rig: MakeRig) -> None:
    """After `drain`, at once: no lease is waited for, and no crash is counted."""
    rig = make_rig(workers={**LONG, "drain": 0.1})
    daemon = rig.start("d1")
    publish_held(rig, once=False)
    assert daemon.stop() == Exit.FINE
    assert [[event.how for event in rig.events("end", id_)] for id_ in HELD] == [["cut"]] * 3
    rig.gate().touch()
    rig.start("d2")
    rig.end(with_faults=False)
    assert [crashes_of(rig, id_) for id_ in HELD] == [[0, 0]] * 3


def lingering(rig: Rig) -> Process:
    """A daemon that runs a thread which doesn't end, and whose application waits at its own end."""
    daemon = rig.start("d1", app="tests.endtoend.handlers:lingering")
    rig.publish([Job("a0", "a", type="thread", facts={"gate": str(rig.gate())}), Job("a1", "a")])
    rig.wait_for_start("a0")
    return daemon


def lease_end(rig: Rig, name: str) -> float:
    """When a daemon's lease ends, in microseconds."""
    end = rig.raw.zscore(rig.keys("daemons"), name)
    assert end is not None, f"{name} has no session"
    return float(str(end))


def test_stop_keeps_what_can_not_be_stopped_until_its_own_end(make_rig: MakeRig) -> None:
    """Until the application has ended, no other daemon runs a task that still runs here."""
    lease = short_lease()
    rig = make_rig(workers={"lease": lease, "drain": 0.1})
    daemon = lingering(rig)
    rig.start("d2")
    daemon.send(signal.SIGTERM)
    rig.until(rig.gate("closing").exists, "the end of the application")
    began = lease_end(rig, "d1")
    rig.until(lambda: lease_end(rig, "d1") > began + 2e6 * lease, "renewals for two leases")
    assert len(rig.events("start", "a0")) == 1
    rig.gate().touch()
    rig.wait_for_end("a0")
    rig.gate("closed").touch()
    assert daemon.wait() == Exit.FINE
    rig.end(with_faults=True)
    assert crashes_of(rig, "a0") == [0, 1]


def test_stop_with_an_application_that_fails_to_end(make_rig: MakeRig) -> None:
    """The process ends all the same, and says why: another daemon has its task by then."""
    rig = make_rig(workers={**LONG, "drain": 0.1})
    daemon = lingering(rig)
    rig.gate("broken").touch()
    assert daemon.stop() == Exit.FAILED
    assert "the pool is broken on purpose" in daemon.tail()
    rig.gate().touch()
    rig.start("d2")
    rig.end(with_faults=True)
    assert crashes_of(rig, "a0") == [0, 1]


def test_second_signal_leaves_at_once(make_rig: MakeRig) -> None:
    """A daemon that is told twice doesn't wait for anybody; the tasks are resumed by name."""
    rig = make_rig(workers=LONG)
    daemon = rig.start("d1")
    publish_held(rig, type_="stubborn")
    daemon.send(signal.SIGTERM)
    daemon.wait_for("daemon.stopping")
    echo = time.monotonic() + ECHO
    rig.until(lambda: time.monotonic() > echo, "the end of echoes")
    daemon.send(signal.SIGINT)
    assert daemon.wait() == 128 + signal.SIGINT
    again = rig.start("d1")
    rig.end(with_faults=True)
    resumed = {event["task"] for event in again.events("task.resumed")}
    # The short plain tasks behind the one that is held may have been caught in the act, too.
    assert resumed - {"p1", "p2", "p3"} == set(HELD)
    assert [crashes_of(rig, id_) for id_ in (*HELD, "a1")] == [[0, 1]] * 3 + [[0]]
