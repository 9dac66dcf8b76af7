"""What intake says of itself while it stands: to whom, since when, and with which verdict."""

from __future__ import annotations

import pytest

from groupflow.core.measures import IntakeMeasures
from groupflow.flow import standstill
from groupflow.flow.standstill import Kind, Standstill


class World:
    def __init__(self) -> None:
        self.now, self.changes, self.measures = 100.0, 0, IntakeMeasures()
        self.standstill = Standstill(self.measures, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def time(self) -> float:
        return self.now


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(standstill, "time", world)
    return world


@pytest.mark.parametrize(
    ("kind", "verdict", "is_for_memory", "is_told"),
    [
        ("", "ok", False, False),
        ("away", "fail", False, False),
        ("store_unavailable", "fail", False, False),
        ("waiting", "warn", False, True),
        ("memory", "fail", True, True),
        ("store_full", "fail", True, True),
    ],
)
def test_each_kind_has_its_verdict(
    world: World, kind: Kind, verdict: str, is_for_memory: bool, is_told: bool
) -> None:
    world.standstill.set(kind, "because")
    check = world.standstill.check("jobs")
    assert check.verdict == verdict
    assert ("because" in check.found) == bool(kind)
    assert world.standstill.is_for_memory == is_for_memory
    assert world.standstill.told() == (
        {"intake": {"paused": "because", "since": 100.0}} if is_told else {}
    )
    assert world.changes == is_told
    assert world.measures.paused == ("" if kind == "away" else kind)


def test_it_begins_away(world: World) -> None:
    assert world.standstill.check("jobs").verdict == "fail"
    assert world.standstill.told() == {}


def test_others_hear_of_each_change_and_of_the_end(world: World) -> None:
    """It has stood since the first of several reasons, and again since the next pause."""
    for kind, changes in (("waiting", 1), ("waiting", 1), ("memory", 2), ("", 3), ("away", 3)):
        world.standstill.set(kind, "because")  # type: ignore[arg-type]
        assert world.changes == changes
        if kind == "memory":
            assert world.standstill.told()["intake"]["since"] == 100.0
        world.now += 1.0
    world.standstill.set("store_full", "because")
    assert world.standstill.told()["intake"]["since"] == 105.0
