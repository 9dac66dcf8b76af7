"""Only the newest of a group's updates counts, seen from outside: it is done, whatever dies."""

from __future__ import annotations

from itertools import count

import pytest

from tests.deadlines import scale, short_lease
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job


@pytest.mark.parametrize("newest", ["waiting", "running"])
def test_updates_that_come_faster_than_they_are_handled(make_rig: MakeRig, newest: str) -> None:
    """One ends before the flood does: it is the one that runs, or that may finish."""
    rule = {"newest": newest} | ({"newest_max": 0.5} if newest == "running" else {})
    rig = make_rig(workers={"lease": short_lease()}, rule=rule)
    daemons = rig.start_all("d1", "d2")
    numbers, names, facts = count(), ("d3", "d4"), {"ms": 1500 * scale()}

    def update() -> str:
        """Another update of each group, each of which takes longer than until the next one."""
        n = next(numbers)
        rig.publish(Job(f"{group}{n}", group, n=n, facts=facts) for group in "abc")
        return f"a{n}"

    for daemon, name in zip(daemons, names, strict=True):
        ended = {event.id for event in rig.events("end") if event.how == "done"}
        superseded = rig.count("superseded")

        def has_gone_on(before: set[str] = ended, were: int = superseded) -> bool:
            update()
            now = {event.id for event in rig.events("end") if event.how == "done"}
            return len(now - before) > 2 and rig.count("superseded") > were

        rig.until(has_gone_on, "some to be done and others superseded")
        rig.kill(daemon)
        rig.start(name)
    last = update()
    rig.end(with_faults=True)
    assert [rig.ask("task", f"{group}{last[1:]}")["state"] for group in "abc"] == ["done"] * 3
    assert any(event.how == "cut" for event in rig.events("end")) == (newest == "running")
