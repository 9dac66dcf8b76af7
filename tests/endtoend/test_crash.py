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

LONG = {"lease": 3600.0}  # longer than any test's deadline: nobody may have to wait for its end


def held_first(rig: Rig, *, once: bool = True, type_: str = "work") -> list[Job]:
    """Two groups and plain tasks, each first one held at the gate; if `once`, until a crash."""
    facts = {"gate": str(rig.gate()), "gate_once": once}
    first = [
        Job("a0", "a", type=type_, facts=facts),
        Job("b0", "b", type=type_, facts=facts),
        Job("p0", type=type_, facts=facts),
    ]
    rest = [Job(f"{group}{n}", group, n=n) for n in range(1, 4) for group in "ab"]
    return [*first, *rest, *(Job(f"p{n}", n=n) for n in range(1, 4))]


def crashes_of(rig: Rig, id_: str) -> list[int]:
    """What each run of a task was told of crashes before it."""
    return [event.crashes for event in rig.events("start", id_)]


def test_kill_and_restart_under_the_same_name(make_rig: MakeRig) -> None:
    """Started again under its name, a daemon takes up at once what it held, before all else."""
    rig = make_rig(workers=LONG)
    daemon = rig.start("d1")
    rig.publish(held_first(rig))
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_start(id_)
    rig.kill(daemon)
    again = rig.start("d1")
    rig.wait_for_all()
    resumed = {event["task"] for event in again.events("task.resumed")}
    # The short plain tasks behind the one that is held may have been caught in the act, too.
    assert resumed - {"p1", "p2", "p3"} == {"a0", "b0", "p0"}
    for id_ in ("a0", "b0", "p0"):
        assert crashes_of(rig, id_) == [0, 1]
    assert crashes_of(rig, "a1") == [0]
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_kill_and_take_over_by_another(make_rig: MakeRig) -> None:
    """When the lease of a dead daemon is over, another one runs its tasks, in order."""
    rig = make_rig(workers={"lease": short_lease()})
    daemon = rig.start("d1")
    rig.publish(held_first(rig))
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_start(id_)
    other = rig.start("d2")
    rig.kill(daemon)
    rig.wait_for_all()
    assert {event["task"] for event in other.events("task.taken_over")} == {"a0", "b0", "p0"}
    for id_ in ("a0", "b0", "p0"):
        assert crashes_of(rig, id_) == [0, 1]
        assert rig.events("start", id_)[1].pid == other.pid
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_killed_again_and_again_under_load(make_rig: MakeRig) -> None:
    """One of two daemons is killed over and over, while hundreds of tasks run."""
    rig = make_rig(workers={"lease": short_lease(), "max_crashes": 50})
    rig.start("steady")
    jobs = [Job(f"t{n}", None if n % 5 == 0 else f"g{n % 7}", n=n) for n in range(400)]
    jobs = [Job(job.id, job.entity, n=job.n, facts={"ms": 5}) for job in jobs]
    victim = rig.start("victim")
    rig.publish(jobs)
    for wanted in (50, 200):
        rig.until(lambda wanted=wanted: rig.is_over(wanted), f"{wanted} tasks")  # type: ignore[misc]
        rig.kill(victim)
        victim = rig.start("victim")
    rig.wait_for_all()
    rig.stop_all()
    assert rig.dead() == []
    assert rig.judge(with_faults=True) == []


def test_poison_task_is_buried(make_rig: MakeRig) -> None:
    """A task that kills its daemon over and over becomes a dead letter, and its group goes on."""
    rig = make_rig(workers={**LONG, "max_crashes": 1})
    facts = {"gate": str(rig.gate())}
    rig.publish([Job("poison", "a", facts=facts), Job("next", "a", n=1)])
    daemon = rig.start("d1")
    rig.wait_for_start("poison")
    rig.kill(daemon)
    rig.start("d1")
    rig.wait_for_all()
    assert rig.dead() == ["poison"]
    assert crashes_of(rig, "poison") == [0]
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_zombie_is_cancelled(make_rig: MakeRig) -> None:
    """A daemon frozen past its lease has lost its tasks: it cancels them, and goes on."""
    rig = make_rig(workers={"lease": short_lease()})
    zombie = rig.start("zombie")
    rig.publish(held_first(rig))
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_start(id_)
    other = rig.start("other")
    zombie.send(signal.SIGSTOP)
    rig.wait_for_all()
    zombie.send(signal.SIGCONT)
    zombie.wait_for("session.lost")
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_end(id_, times=2)
        assert [event.how for event in rig.events("end", id_)] == ["done", "cut"]
    # It is a daemon like any other again.
    assert other.stop() == Exit.FINE
    rig.publish([Job(f"q{n}", f"g{n % 4}" if n % 3 else None, n=n) for n in range(40)])
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_zombies_settle_is_refused(make_rig: MakeRig) -> None:
    """A handler in a thread can't be cancelled: what it did as a zombie is not accepted."""
    rig = make_rig(workers={"lease": short_lease()})
    zombie = rig.start("zombie")
    rig.publish(held_first(rig, type_="thread"))
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_start(id_)
    other = rig.start("other")
    zombie.send(signal.SIGSTOP)
    rig.wait_for_all()
    zombie.send(signal.SIGCONT)
    zombie.wait_for("session.lost")
    rig.gate().touch()
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_end(id_, times=2)
    zombie.wait_for("claim.lost", times=3)
    assert [event.pid for event in rig.events("end", "a0")] == [other.pid, zombie.pid]
    rig.stop_all()
    assert rig.count("done") == len(rig.jobs)
    assert rig.judge(with_faults=True) == []


def test_stop_lets_running_tasks_end(make_rig: MakeRig) -> None:
    """SIGTERM: what runs may end, nothing new begins, and the daemon leaves with 0."""
    rig = make_rig(workers=LONG)
    daemon = rig.start("d1")
    rig.publish(held_first(rig, once=False))
    for id_ in ("a0", "b0", "p0", "p3"):
        rig.wait_for_start(id_)
    rig.until(lambda: rig.is_over(3), "the free plain tasks")
    for _ in range(3):  # as `timeout` and supervisors send it: twice and more, which is one wish
        daemon.send(signal.SIGTERM)
    daemon.wait_for("intake.stopped")
    rig.gate().touch()
    assert daemon.wait() == Exit.FINE
    assert [event.how for event in rig.events("end", "a0")] == ["done"]
    assert rig.events("start", "a1") == []
    assert rig.count("queued_grouped") == 6
    rig.start("d2")
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=False) == []


def test_stop_hands_back_what_does_not_end(make_rig: MakeRig) -> None:
    """After `drain` the rest is handed back at once: another daemon needn't wait for the lease."""
    rig = make_rig(workers={**LONG, "drain": 0.1})
    daemon = rig.start("d1")
    rig.publish(held_first(rig, once=False))
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_start(id_)
    assert daemon.stop() == Exit.FINE
    for id_ in ("a0", "b0", "p0"):
        assert [event.how for event in rig.events("end", id_)] == ["cut"]
    rig.gate().touch()
    rig.start("d2")
    rig.wait_for_all()
    for id_ in ("a0", "b0", "p0"):
        assert crashes_of(rig, id_) == [0, 0]
    rig.stop_all()
    assert rig.judge(with_faults=False) == []


def test_stop_with_a_thread_that_does_not_end(make_rig: MakeRig) -> None:
    """What can't be stopped ends with the process, and is handed over as after a crash."""
    rig = make_rig(workers={**LONG, "drain": 0.1})
    daemon = rig.start("d1")
    rig.publish([Job("a0", "a", type="thread", facts={"gate": str(rig.gate())}), Job("a1", "a")])
    rig.wait_for_start("a0")
    assert daemon.stop() == Exit.FINE
    rig.gate().touch()
    rig.start("d2")
    rig.wait_for_all()
    assert crashes_of(rig, "a0") == [0, 1]
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def lingering(rig: Rig) -> Process:
    """A daemon that runs a thread which doesn't end, and whose application waits at its own end."""
    daemon = rig.spawn("d1", app="tests.endtoend.handlers:lingering")
    daemon.wait_for("intake.started")
    rig.publish([Job("a0", "a", type="thread", facts={"gate": str(rig.gate())}), Job("a1", "a")])
    rig.wait_for_start("a0")
    return daemon


def lease_end(rig: Rig, name: str) -> float:
    """When a daemon's lease ends, in microseconds."""
    end = rig.raw.zscore(rig.keys("daemons"), name)
    assert end is not None, f"{name} has no session"
    return float(str(end))


def test_stop_keeps_what_can_not_be_stopped_until_its_own_end(make_rig: MakeRig) -> None:
    """However long the application takes to end, nobody else runs a task that still runs here."""
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
    rig.wait_for_all()
    assert crashes_of(rig, "a0") == [0, 1]
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_stop_with_a_thread_and_an_application_that_fails_to_end(make_rig: MakeRig) -> None:
    """The process ends all the same, and says why: its task is somebody else's by then."""
    rig = make_rig(workers={**LONG, "drain": 0.1})
    daemon = lingering(rig)
    rig.gate("broken").touch()
    assert daemon.stop() == Exit.FAILED
    assert "the pool is broken on purpose" in daemon.tail()
    rig.gate().touch()
    rig.start("d2")
    rig.wait_for_all()
    assert crashes_of(rig, "a0") == [0, 1]
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_second_signal_leaves_at_once(make_rig: MakeRig) -> None:
    """Whoever asks twice doesn't wait for anybody; the tasks are resumed by name."""
    rig = make_rig(workers=LONG)
    daemon = rig.start("d1")
    rig.publish(held_first(rig, type_="stubborn"))
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_start(id_)
    daemon.send(signal.SIGTERM)
    daemon.wait_for("daemon.stopping")
    echo = time.monotonic() + ECHO
    rig.until(lambda: time.monotonic() > echo, "the time in which it would be an echo to be over")
    daemon.send(signal.SIGINT)
    assert daemon.wait() == 128 + signal.SIGINT
    rig.start("d1")
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=True) == []


def test_two_daemons_of_one_name(make_rig: MakeRig) -> None:
    """The later one has the name and the tasks; the earlier one leaves with 78, and says why."""
    rig = make_rig(workers={"lease": short_lease(2.0)})
    older = rig.start("d1")
    rig.publish(held_first(rig))
    for id_ in ("a0", "b0", "p0"):
        rig.wait_for_start(id_)
    newer = rig.start("d1")
    assert older.wait() == Exit.CONFIG
    assert "--name" in older.tail()
    rig.wait_for_all()
    assert newer.stop() == Exit.FINE
    assert rig.judge(with_faults=True) == []
