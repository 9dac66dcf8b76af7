"""Debounce, with real daemons: one run a burst, by a reload too, told by all that tells."""

from __future__ import annotations

import re
import signal

from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Job

REPLACED = 9  # tasks of a burst but for the last


def burst(name: str, entity: str = "contact") -> list[Job]:
    """Each of them says how many it is."""
    return [Job(f"{name}{n}", entity, n=n) for n in range(REPLACED + 1)]


def test_a_burst_runs_once(make_rig: MakeRig) -> None:
    """With the newest body; where a rule begins to debounce while its daemons run, from then on."""
    rig = make_rig(workers={"grouped": 2})
    daemons = rig.start_all("d1", "d2")
    rig.publish(burst("old"))
    rig.wait_for_all()
    assert rig.count("superseded") == 0

    rig.configure(rule={"debounce": 300.0}, workers={"grouped": 2})
    for daemon in daemons:
        daemon.send(signal.SIGHUP)
        change = daemon.wait_for("config.reloaded")["changes"][0]
        assert (change["setting"], change["needs_restart"]) == ("groups.groups[0].debounce", False)
    rig.publish([*burst("a"), *burst("b", "else")])
    rig.until(lambda: rig.count("superseded") == 2 * REPLACED, "the bursts to come in")
    assert rig.ask("status")["superseded_total"] == 2 * REPLACED
    assert f"superseded {2 * REPLACED}" in rig.say("status")
    waits = r"waits for quiet until \d\d:\d\d:\d\d, at \d\d:\d\d:\d\d at the latest"
    why = rig.ask("why", "contact:42")
    assert (why["state"], why["head"]) == ("delayed", f"a{REPLACED}")
    assert re.fullmatch(waits, why["reason"])
    assert re.fullmatch(waits, rig.ask("task", f"a{REPLACED}")["reason"])
    found = rig.ask("task", "a0")
    assert (found["state"], found["superseded_by"]) == ("superseded", "a1")
    assert "superseded by a1" in rig.say("task", "a0")
    rows = rig.ask("tasks", "superseded")
    assert {row["id"] for row in rows} == {f"{x}{n}" for x in "ab" for n in range(REPLACED)}
    rig.publish(burst("a")[:1])  # once more: it is known

    rig.configure(rule={"debounce": 0.2, "debounce_max": 1}, workers={"grouped": 2})
    for daemon in daemons:
        daemon.send(signal.SIGHUP)
        daemon.wait_for("config.reloaded", 2)
    rig.publish([Job("last", "contact", n=99)])
    rig.say("task", "run-now", f"b{REPLACED}")
    rig.wait_for_all()
    ran = [event.id for event in rig.events("start")]
    assert ran[: REPLACED + 1] == [f"old{n}" for n in range(REPLACED + 1)]
    assert sorted(ran[REPLACED + 1 :]) == [f"b{REPLACED}", "last"]
    rig.stop_all()
    assert rig.judge(with_faults=False) == []
