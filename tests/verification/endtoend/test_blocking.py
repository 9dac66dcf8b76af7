"""A handler that blocks its daemon's event loop: its tasks are kept for `max_block`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig
from tests.endtoend.test_slow_daemons import counted

LEASES = 3  # for so many a block lasts that is borne


def lease_end(rig: Rig, daemon: str) -> float:
    """When the lease of a daemon ends, by Redis's clock, in seconds; 0 where it has none."""
    found: Any = rig.raw.zscore(rig.keys("daemons"), daemon)
    return float(found or 0) / 1e6


def blocked(rig: Rig, **facts: Any) -> Process:
    """A daemon whose loop is blocked by `a0`, with others of its tasks beside that."""
    daemon = rig.start("d1")
    beside = {"gate": str(rig.gate("beside"))}
    rig.publish([Job("b0", "b", facts=beside), Job("p0", facts=beside)])
    rig.wait_for_starts("b0", "p0")
    rig.publish([Job("a0", "a", type="block", facts={"gate": str(rig.gate()), **facts})])
    rig.wait_for_start("a0")
    return daemon


@pytest.mark.parametrize("computes", [False, True], ids=["waits", "computes"])
def test_a_block_of_three_leases_costs_nobody_a_task(make_rig: MakeRig, computes: bool) -> None:
    """Another daemon is there, and takes nothing over but RabbitMQ's deliveries."""
    lease = short_lease()
    rig = make_rig(workers={"lease": lease}, rabbitmq={"heartbeat": 1})
    daemon = blocked(rig, computes=computes)
    other = rig.start("d2")
    held = lease_end(rig, "d1")
    rig.publish([Job(f"{g}{n}", g, n=n) for n in range(1, 4) for g in "abc"])

    def is_judged() -> bool:
        lost = other.events("task.taken_over") or not lease_end(rig, "d1")
        return bool(lost) or lease_end(rig, "d1") > held + LEASES * lease

    rig.until(is_judged, "what becomes of the lease")
    seen = daemon.wait_for("loop.blocked")
    rig.gate().touch()
    rig.gate("beside").touch()
    rig.wait_for_all()
    daemon.wait_for("loop.unblocked")
    rig.stop_all()
    assert (seen["task"], seen["type"], seen["group"]) == ("a0", "block", "a:42")
    assert "tests/endtoend/handlers.py" in "".join(seen["at"])
    for name in ("lease.ended", "session.lost", "claim.lost", "loop.given_up"):
        assert daemon.events(name) == []
    assert other.events("task.taken_over") == []
    runs = [event for event in rig.events("start") if event.id in ("a0", "b0", "p0")]
    assert [event.crashes for event in runs] == [0, 0, 0]
    assert rig.judge(with_faults=False) == []


def test_a_block_for_ever_is_taken_over(make_rig: MakeRig) -> None:
    """The others have its tasks while it still stands; when it turns again it is a daemon again."""
    lease = short_lease()
    block = {"lease": lease, "max_block": 2 * lease}
    rig = make_rig(workers=block, rabbitmq={"heartbeat": 1})
    daemon = blocked(rig, gate_once=True)
    rig.gate("beside").touch()
    other = rig.start("d2")
    rig.publish([Job(f"{g}{n}", g, n=n) for n in range(1, 4) for g in "abc"])
    rig.wait_for_all()
    assert rig.wait_for_start("a0", times=2).pid == other.pid
    taken = {event["task"] for event in other.events("task.taken_over")}
    assert {"a0", "b0", "p0"} <= taken
    given_up = daemon.wait_for("loop.given_up")
    assert (given_up["level"], given_up["task"]) == ("error", "a0")
    assert given_up["blocked_for"] >= given_up["max_block"] == 2 * lease
    assert "max_block" in daemon.wait_for("lease.ended")["reason"]
    assert rig.events("end", "a0")[0].pid == other.pid  # the first run stands where it stood
    rig.gate().touch()
    daemon.wait_for("session.lost")
    other.stop()
    rig.publish([Job("a4", "a", n=4), Job("c4", "c", n=4)])
    rig.wait_for_all()
    assert rig.wait_for_end("a4").pid == daemon.pid
    # What blocked it crashed, though the daemon lives; what it held beside that did not.
    assert counted(rig, "a0") == (1, 0)
    assert counted(rig, "b0") == counted(rig, "p0") == (0, 1)
    rig.stop_all()
    assert rig.judge(with_faults=True) == []
