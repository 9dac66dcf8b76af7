"""A handler that blocks its daemon's event loop: its tasks are kept for `max_block`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.process import Process
from tests.endtoend.rig import Job, Rig


def counted(rig: Rig, id_: str) -> tuple[int, int]:
    """Crashes and lost leases of a task, as an operator sees them."""
    told = rig.ask("task", id_)
    return told["crashes"], told["lost_leases"]


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
def test_a_block_is_borne_for_max_block(make_rig: MakeRig, computes: bool) -> None:
    """Until then another daemon takes nothing over; then it does, and the blocked one comes back.

    It is named from a lease on; when its loop turns again, it is a daemon as any other.
    """
    lease = short_lease()
    block = {"lease": lease, "max_block": 3 * lease}
    rig = make_rig(workers=block, rabbitmq={"heartbeat": 1})
    daemon = blocked(rig, gate_once=True, computes=computes)
    rig.gate("beside").touch()
    other = rig.start("d2")
    seen = daemon.wait_for("loop.blocked")
    assert (seen["task"], seen["type"], seen["group"]) == ("a0", "block", "a:42")
    assert "tests/endtoend/handlers.py" in "".join(seen["at"])
    rig.publish([Job(f"{g}{n}", g, n=n) for n in range(1, 4) for g in "abc"])
    rig.wait_for_all()
    begun = rig.wait_for_start("a0", times=2)
    assert begun.pid == other.pid
    assert begun.at - rig.events("start", "a0")[0].at >= 3 * lease
    taken = {event["task"] for event in other.events("task.taken_over")}
    assert {"a0", "b0", "p0"} <= taken
    given_up = daemon.wait_for("loop.given_up")
    assert (given_up["level"], given_up["task"]) == ("error", "a0")
    assert given_up["blocked_for"] >= given_up["max_block"] == 3 * lease
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
    rig.end(with_faults=True)
