"""A deploy that brings a type, seen from outside: its tasks wait for their handler, in order."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from tests.endtoend.rig import Job, Rig

MakeRig = Callable[..., Rig]
COMMAND = '[handlers."{type}"]\nexec = ["true"]\n'


def brings(rig: Rig, type_: str) -> None:
    """The configuration has a handler for it from here on."""
    with rig.config.open("a") as file:
        file.write(COMMAND.format(type=type_))


def until_delayed(rig: Rig, id_: str) -> dict[str, Any]:
    """Wait until a task is delayed; what is known of it then."""
    told: dict[str, Any] = {}

    def is_so() -> bool:
        told.update(rig.ask("task", id_, code=None) or {})
        return told.get("state") == "delayed"

    rig.until(is_so, f"{id_} to be delayed")
    return told


def test_its_tasks_wait_for_a_handler(make_rig: MakeRig) -> None:
    """The daemon that met them is killed; a reload brings one type, another daemon the other."""
    rig = make_rig(workers={"lease": 60.0, "unknown_for": 3600.0})
    first = rig.start("d1")
    rig.publish([Job("a0", "a", type="one"), Job("a1", "a"), Job("b0", "b", type="two")])
    for id_, type_ in (("a0", "one"), ("b0", "two")):
        assert f"no daemon knows its type '{type_}'" in until_delayed(rig, id_)["reason"]
    told: Any = rig.ask("why", "a:42")
    assert (told["state"], told["head"]) == ("delayed", "a0")
    assert "no daemon knows its type 'one'" in told["reason"]
    assert {each["type"] for each in first.events("type.unknown")} == {"one", "two"}
    rig.kill(first)
    again = rig.start("d1")
    brings(rig, "one")
    again.send(signal.SIGHUP)
    rig.wait_for_end("a1")
    assert rig.ask("task", "a0")["state"] == "done"
    assert rig.ask("task", "b0")["state"] == "delayed"
    brings(rig, "two")
    rig.start("d2")
    rig.wait_for_all()
    assert rig.ask("task", "b0")["state"] == "done"
    rig.stop_all()


def test_without_one_they_are_dead_and_the_group_goes_on(make_rig: MakeRig) -> None:
    """All of the type at once, however many stand in the group."""
    rig = make_rig(workers={"unknown_for": 0.5})
    rig.start("d1")
    rig.publish([*(Job(f"a{n}", "a", type="one") for n in range(20)), Job("last", "a")])
    rig.wait_for_end("last")
    assert len(rig.dead()) == 20
    letter = rig.ask("dead", "show", "a19")
    assert letter["reason"] == "no daemon has known its type 'one' for 0.5 s"
    assert letter["attempts"] == 1
    rig.stop_all()
