"""What intake says of itself while it stands: to whom, since when, and with which verdict."""

from __future__ import annotations

import pytest

from groupflow.core.measures import IntakeMeasures
from groupflow.flow import backpressure
from groupflow.flow.backpressure import IntakeState, Kind


class World:
    def __init__(self) -> None:
        self.now, self.changes, self.measures = 100.0, 0, IntakeMeasures()
        self.state = IntakeState(self.measures, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def time(self) -> float:
        return self.now


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(backpressure, "time", world.time)
    return world


@pytest.mark.parametrize(
    ("kind", "verdict", "lacks_memory", "is_told"),
    [
        ("", "ok", False, False),
        ("away", "fail", False, False),
        ("store_unavailable", "fail", False, False),
        ("waiting", "warn", False, True),
        ("memory", "fail", True, True),
        ("store_full", "fail", True, True),
        ("too_few_replicas", "fail", False, True),
    ],
)
def test_each_kind_has_its_verdict(
    world: World, kind: Kind, verdict: str, lacks_memory: bool, is_told: bool
) -> None:
    world.state.set(kind, "because")
    check = world.state.check("jobs")
    assert check.verdict == verdict
    assert ("because" in check.found) == bool(kind)
    assert world.state.lacks_memory == lacks_memory
    assert world.state.told() == (
        {"intake": {"paused": "because", "since": 100.0}} if is_told else {}
    )
    assert world.changes == is_told
    assert world.measures.paused == ("" if kind == "away" else kind)


def test_it_begins_away(world: World) -> None:
    assert world.state.check("jobs").verdict == "fail"
    assert world.state.told() == {}


def test_others_hear_of_each_change_and_of_the_end(world: World) -> None:
    """It has stood since the first of several reasons, and again since the next pause."""
    for kind, changes in (("waiting", 1), ("waiting", 1), ("memory", 2), ("", 3), ("away", 3)):
        world.state.set(kind, "because")  # type: ignore[arg-type]
        assert world.changes == changes
        if kind == "memory":
            assert world.state.told()["intake"]["since"] == 100.0
        world.now += 1.0
    world.state.set("store_full", "because")
    assert world.state.told()["intake"]["since"] == 105.0


class TestSeveralQueues:
    @pytest.fixture
    def state(self) -> IntakeState:
        found = IntakeState(IntakeMeasures(), lambda: None, ["q.0", "q.1"])
        for queue in ("q.0", "q.1"):
            found.set("", queue=queue)
        return found

    def test_it_begins_away_from_all(self) -> None:
        begun = IntakeState(IntakeMeasures(), lambda: None, ["q.0", "q.1"])
        assert begun.check("q").verdict == "fail"
        begun.set("", queue="q.0")
        assert begun.check("q").verdict == "warn"
        begun.set("", queue="q.1")
        assert begun.check("q").verdict == "ok"

    def test_one_that_is_away_is_named(self, state: IntakeState) -> None:
        """The others go on, so that this daemon is ready; where all are away it isn't."""
        state.set("away", "no leader", "q.1")
        check = state.check("q")
        assert (check.verdict, check.found) == ("warn", "consumes q, but not q.1: no leader")
        state.set("away", "no leader", "q.0")
        assert state.check("q").verdict == "fail"

    @pytest.mark.parametrize("kind", ["waiting", "memory", "store_full", "store_unavailable"])
    def test_the_worst_counts(self, state: IntakeState, kind: Kind) -> None:
        """From the first intake that stands until the last one goes on."""
        state.set("away", "gone", "q.0")
        state.set(kind, "because", "q.1")
        assert "because" in state.check("q").found
        state.set(kind, "because", "q.0")
        state.set("", queue="q.1")
        assert "because" in state.check("q").found
        state.set("", queue="q.0")
        assert state.check("q").verdict == "ok"

    def test_a_queue_that_is_over_is_nothing_to_stand_for(self, state: IntakeState) -> None:
        state.set("away", "gone", "q.1")
        state.forget("q.1")
        assert state.check("q").verdict == "ok"
