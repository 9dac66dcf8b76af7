"""Limits by hand, with real daemons: kept over daemons and partitions, and over by themselves."""

from __future__ import annotations

import time

import pytest

from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job, Rig
from tests.endtoend.test_limits import hot, running

SPAN = 2  # seconds


def limit(rig: Rig, *words: str) -> None:
    said = rig.call("limit", *words, "--config", str(rig.config))
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_tenants_rate_holds_and_ends_by_itself(make_rig: MakeRig, partitions: int) -> None:
    """Over two daemons, grouped and plain alike; another tenant doesn't wait for it."""
    rig = make_rig(redis={"partitions": partitions})
    daemons = rig.start_all("d1", "d2")
    began = time.monotonic()
    limit(rig, "tenant", "7", "--rate", "3/s", "--for", f"{SPAN}s")
    rig.publish(Job(f"t{n}", f"g{n}" if n % 2 else None, tenant=7) for n in range(60))
    rig.publish(Job(f"other{n}", None, tenant=8) for n in range(60))
    rig.wait_for_all()
    ended = [each for one in daemons for each in one.events("limit.ended")]
    rig.stop_all()
    assert rig.judge(with_faults=False) == []
    starts = [each.at for each in rig.events("start") if each.tenant == "7"]
    # Of each application (plain tasks are another's), in each partition: one at once, and then a
    # third of the rate in each of three.
    assert sum(at < began + SPAN for at in starts) <= 2 * (3 * SPAN + partitions)
    assert [(each["tenant"], each["by"]) for each in ended] == [("7", None)]


def test_more_of_a_group_run_and_then_fewer(make_rig: MakeRig) -> None:
    """At once, and when enough have ended; a run that is under way gives way first."""
    rig = make_rig(rule={"run": 4}, workers={"grouped": 8})
    rig.concurrency = 4
    daemon = rig.start("d1")
    rig.publish(hot(rig, 8))
    rig.wait_for_start("gate0")
    limit(rig, "group", "hot:42", "--concurrency", "4")
    daemon.wait_for("limit.began")
    rig.publish(hot(rig, 8, "second"))
    rig.gate().touch()
    rig.until(lambda: running(rig) == 4, "four of the second half to run")
    limit(rig, "group", "hot:42", "--off")
    daemon.wait_for("limit.ended")
    rig.gate("second").touch()
    rig.wait_for_all()
    rig.stop_all()
    assert rig.judge(with_faults=False) == []
