"""An outage is told when it begins, once a minute, and when all of it is over."""

from __future__ import annotations

from groupflow.core.backoff import TOGETHER, Outage


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_many_failures_are_a_line_a_minute() -> None:
    clock = Clock()
    outage = Outage(clock)
    told = []
    for tenth in range(1800):
        clock.now = 100.0 + tenth / 10
        told.append(outage.failed())
    assert [facts for facts in told if facts is not None] == [
        {},
        {"away_for": 60.0},
        {"away_for": 120.0},
    ]
    assert outage.is_away
    assert outage.answered() == 179.9
    assert not outage.is_away
    assert outage.answered() is None, "it was told once"
    assert outage.failed() == {}, "the next one is another"


def test_what_goes_together_is_one_outage_and_ends_with_the_last() -> None:
    clock = Clock()
    outage = Outage(clock)
    assert outage.failed("a") == {}
    assert outage.failed("b") is None
    clock.now += TOGETHER
    assert outage.failed("c") == {"away_for": TOGETHER}, "that one went later"
    clock.now += 1
    assert outage.answered("a") is None
    assert outage.answered("unknown") is None
    outage.forget("b")
    assert outage.is_away
    assert outage.answered("c") == TOGETHER + 1
    outage.failed()
    outage.forget()
    assert outage.failed() == {}, "the only one was forgotten: another outage"


def test_a_late_failure_is_no_second_outage() -> None:
    clock = Clock()
    outage = Outage(clock, settles=0.5)
    assert outage.failed() == {}
    assert outage.answered() is None, "others may be told of the same end still"
    clock.now += 0.4
    assert outage.failed() is None
    clock.now += 0.4
    assert outage.answered() is None
    clock.now += 0.2
    assert outage.answered() == 1.0
