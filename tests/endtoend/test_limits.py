"""Limits of groups, with real daemons: kept over all of them, after crashes and by a reload."""

from __future__ import annotations

import signal
import time

from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig

SPAN = 2  # seconds


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


def test_a_tenants_rate_by_hand_holds_and_ends_by_itself(make_rig: MakeRig) -> None:
    """Over two daemons and three partitions, grouped and plain alike; another tenant goes on."""
    rig = make_rig(redis={"partitions": 3})
    daemons = rig.start_all("d1", "d2")
    began = time.monotonic()
    rig.say("limit", "tenant", "7", "--rate", "3/s", "--for", f"{SPAN}s")
    rig.publish(Job(f"t{n}", f"g{n}" if n % 2 else None, tenant=7) for n in range(60))
    rig.publish(Job(f"other{n}", None, tenant=8) for n in range(60))
    rig.end(with_faults=False)
    ended = [each for one in daemons for each in one.events("limit.ended")]
    starts = [each.at for each in rig.events("start") if each.tenant == "7"]
    # Of each application (plain tasks are another's), in each partition: one at once, and then a
    # third of the rate in each of three.
    assert sum(at < began + SPAN for at in starts) <= 2 * (3 * SPAN + 3)
    assert [(each["tenant"], each["by"]) for each in ended] == [("7", None)]
