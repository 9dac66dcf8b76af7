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
    ("facts", "made"),
    [
        ({"missed": "once"}, [6]),
        ({"missed": "skip"}, []),
        ({"missed": "all"}, [0, 1, 2, 3, 4, 5, 6]),
        ({"missed": "all", "catch_up": 60}, []),
    ],
)
def test_after_six_hours_away(facts: dict[str, Any], made: list[int]) -> None:
    now = MIDNIGHT + 6 * HOUR + 1800 * SECOND
    found = decide(hourly(**facts), MIDNIGHT, now)
    assert found.make == [MIDNIGHT + n * HOUR for n in made]
    assert (found.missed, found.next_at) == (7, MIDNIGHT + 7 * HOUR)


def test_catch_up_bounds_how_far_all_goes_back() -> None:
    now = MIDNIGHT + 6 * HOUR + SECOND
    found = decide(hourly(missed="all", catch_up=2 * 3600 + 2), MIDNIGHT, now)
    assert found.make == [MIDNIGHT + n * HOUR for n in (4, 5, 6)]
    assert found.missed == 6


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


MINUTE, DAY = 60 * SECOND, 24 * HOUR


@pytest.mark.parametrize(
    ("facts", "now", "was", "first"),
    [
        ({}, SECOND, (), HOUR),  # a new one waits for its time
        # It was due at midnight, and a long restart made that minute 1 of each hour.
        ({"cron": "1 * * * *", "missed": "all"}, 3 * HOUR, (0, -HOUR), 2 * HOUR + MINUTE),
        ({"cron": "1 * * * *", "missed": "skip"}, 3 * HOUR, (0, -HOUR), 3 * HOUR + MINUTE),
        # Nothing was due, so none is made up; nor twice what a clock that went back has made.
        ({"cron": "*/5 * * * *"}, 1801 * SECOND, (DAY, 0), 2100 * SECOND),
        ({}, -SECOND, (-MIDNIGHT, 0), HOUR),
    ],
)
def test_when_one_that_begins_or_has_another_timing_is_due(
    facts: dict[str, Any], now: int, was: tuple[int, ...], first: int
) -> None:
    found = first_due(hourly(**facts), MIDNIGHT + now, *(MIDNIGHT + each for each in was))
    assert found == MIDNIGHT + first
