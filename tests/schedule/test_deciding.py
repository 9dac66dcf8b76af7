"""What is made of ticks that are due, by how late they are looked at."""

from __future__ import annotations

from typing import Any

import pytest

from groupflow.schedule.deciding import MOST_COUNTED, MOST_MADE, decide, first_due
from groupflow.schedule.definitions import Definition
from tests.schedule.clockwork import HOUR, defined, rule

SECOND = 1_000_000
MIDNIGHT = 1_790_000_000_000_000 // (24 * HOUR) * 24 * HOUR


def hourly(**facts: Any) -> Definition:
    (found,) = defined(rule(**facts))
    return found


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
@pytest.mark.parametrize("late", [0, 1, 60 * SECOND])
def test_one_that_is_due_is_made_whatever_the_policy(missed: str, late: int) -> None:
    found = decide(hourly(missed=missed, catch_up=0), MIDNIGHT, MIDNIGHT + late)
    assert (found.make, found.missed) == ([MIDNIGHT], 0)
    assert (found.until, found.next_at) == (MIDNIGHT, MIDNIGHT + HOUR)


@pytest.mark.parametrize(
    ("missed", "made"),
    [("once", [6]), ("skip", []), ("all", [0, 1, 2, 3, 4, 5, 6])],
)
def test_after_six_hours_away(missed: str, made: list[int]) -> None:
    now = MIDNIGHT + 6 * HOUR + 1800 * SECOND
    found = decide(hourly(missed=missed), MIDNIGHT, now)
    assert found.make == [MIDNIGHT + n * HOUR for n in made]
    assert found.missed == 7
    assert found.next_at == MIDNIGHT + 7 * HOUR


@pytest.mark.parametrize("missed", ["once", "skip"])
def test_one_that_is_on_time_is_made_after_those_that_are_not(missed: str) -> None:
    found = decide(hourly(missed=missed), MIDNIGHT, MIDNIGHT + 6 * HOUR + SECOND)
    assert (found.make, found.missed) == ([MIDNIGHT + 6 * HOUR], 6)


def test_catch_up_bounds_how_far_all_goes_back() -> None:
    now = MIDNIGHT + 6 * HOUR + SECOND
    found = decide(hourly(missed="all", catch_up=2 * 3600 + 2), MIDNIGHT, now)
    assert found.make == [MIDNIGHT + n * HOUR for n in (4, 5, 6)]
    assert found.missed == 6


def test_nothing_of_the_time_of_catch_up_is_left() -> None:
    now = MIDNIGHT + 6 * HOUR + 1800 * SECOND
    found = decide(hourly(missed="all", catch_up=60), MIDNIGHT, now)
    assert (found.make, found.missed, found.next_at) == ([], 7, MIDNIGHT + 7 * HOUR)


def test_all_of_many_are_made_some_at_a_time() -> None:
    definition = hourly(every=1.0, missed="all")
    due, now, made, missed = MIDNIGHT, MIDNIGHT + 1000 * SECOND, 0, 0
    while due <= now:
        found = decide(definition, due, now)
        assert found.make[0] == due
        assert len(found.make) <= MOST_MADE
        made, missed, due = made + len(found.make), missed + found.missed, found.next_at
    assert (made, missed) == (1001, 940)  # the last minute is on time
    assert due == now + SECOND


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
def test_an_endless_absence_is_counted_in_bounded_time(missed: str) -> None:
    now = MIDNIGHT + 3 * MOST_COUNTED * SECOND
    found = decide(hourly(every=1.0, missed=missed, catch_up=10), MIDNIGHT, now)
    assert MOST_COUNTED <= found.missed <= MOST_COUNTED + 1
    assert found.make[-1] == now  # the last one is on time
    assert found.next_at == now + SECOND


def test_what_is_due_need_not_be_a_time_of_the_definition() -> None:
    """As when the time zone's rules have changed since."""
    found = decide(hourly(), MIDNIGHT + 7, MIDNIGHT + 8)
    assert (found.make, found.next_at) == ([MIDNIGHT + 7], MIDNIGHT + HOUR)


class TestFirst:
    """When a schedule is due that begins, or has another timing."""

    def test_a_new_one_waits_for_its_time(self) -> None:
        assert first_due(hourly(), MIDNIGHT + SECOND) == MIDNIGHT + HOUR

    def test_what_fell_due_meanwhile_is_made_up_once(self) -> None:
        """It was due at midnight, and a long restart made that minute 1 of each hour."""
        definition = hourly(cron="1 * * * *", missed="all")
        now = MIDNIGHT + 3 * HOUR
        first = first_due(definition, now, MIDNIGHT, MIDNIGHT - HOUR)
        assert first == MIDNIGHT + 2 * HOUR + 60 * SECOND

    def test_nothing_is_made_up_that_was_not_due(self) -> None:
        definition = hourly(cron="*/5 * * * *")
        now, due = MIDNIGHT + 1801 * SECOND, MIDNIGHT + 24 * HOUR
        assert first_due(definition, now, due, MIDNIGHT) == MIDNIGHT + 2100 * SECOND

    def test_skip_makes_nothing_up(self) -> None:
        definition = hourly(cron="1 * * * *", missed="skip")
        now = MIDNIGHT + 3 * HOUR
        first = first_due(definition, now, MIDNIGHT, MIDNIGHT - HOUR)
        assert first == MIDNIGHT + 3 * HOUR + 60 * SECOND

    def test_a_clock_that_went_back_makes_nothing_twice(self) -> None:
        assert first_due(hourly(), MIDNIGHT - SECOND, 0, MIDNIGHT) == MIDNIGHT + HOUR
