"""When ticks are due: plain cases, clocks that are changed, and what holds for any expression."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupflow.core.timing import NEVER, Cron, Every, Timing, last_tick, next_tick, tick_text


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp()) * 1_000_000


def ticks(timing: Timing, begin: str, number: int) -> list[str]:
    return [tick_text(tick) for tick in islice(timing.ticks(at(begin)), number)]


def cron(expression: str, zone: str = "UTC") -> Cron:
    return Cron(expression, ZoneInfo(zone))


def test_a_moment_as_text() -> None:
    assert tick_text(at("2026-11-22T03:00:00+00:00")) == "2026-11-22T03:00:00Z"
    assert tick_text(at("2026-11-22T03:00:00+00:00") + 50_000) == "2026-11-22T03:00:00.05Z"


def test_every_is_counted_from_1970_and_does_not_drift() -> None:
    timing = Every(7_500_000)
    found = [*islice(timing.ticks(at("2026-11-22T03:00:01+00:00")), 1000)]
    assert all(tick % 7_500_000 == 0 for tick in found)
    assert {b - a for a, b in pairwise(found)} == {7_500_000}
    assert next_tick(timing, found[0] - 1) == found[0]
    assert next_tick(timing, found[0]) == found[1]


def test_seconds_come_first_where_there_are_six_fields() -> None:
    found = ticks(cron("*/20 30 2 * * *"), "2026-11-22T02:30:19+00:00", 3)
    assert found == [f"2026-11-{tick}Z" for tick in ("22T02:30:20", "22T02:30:40", "23T02:30:00")]


# Each: what begins, what Debian's cron would do of a job at that local time in UTC, zone by zone.
CHANGES = [
    # The skipped hour is 02:00 to 03:00 of 29 March.
    ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00+00:00", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "30 3 * * *", "2026-03-28T12:00:00+00:00", "2026-03-29T01:30:00Z"),
    # 02:00 to 03:00 of 8 March.
    ("America/New_York", "15 2 * * *", "2026-03-07T12:00:00+00:00", "2026-03-08T07:00:00Z"),
    # Half an hour, 02:00 to 02:30 of 4 October.
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T08:00:00+00:00", "2026-10-03T15:30:00Z"),
    # Hours that come twice.
    ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00+00:00", "2026-10-25T00:30:00Z"),
    ("America/New_York", "30 1 * * *", "2026-10-31T12:00:00+00:00", "2026-11-01T05:30:00Z"),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T08:00:00+00:00", "2026-04-04T14:45:00Z"),
]


@pytest.mark.parametrize(("zone", "expression", "before", "tick"), CHANGES)
def test_a_job_of_a_skipped_or_repeated_hour_runs_once(
    zone: str, expression: str, before: str, tick: str
) -> None:
    """Asked at any moment after it, the next one is not before the next day."""
    timing = cron(expression, zone)
    found = ticks(timing, before, 2)
    assert found[0] == tick
    assert at(found[1]) - at(tick) > 20 * 3600 * 1_000_000
    for minute in range(0, 180, 5):
        assert next_tick(timing, at(tick) + minute * 60_000_000) == at(found[1])
    assert ticks(cron(f"0 {expression}", zone), before, 2) == found


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", ["*/10 * * * *", "0 * * * *", "* */10 * * * *"])
def test_what_runs_often_goes_by_the_time_that_passes(zone: str, expression: str) -> None:
    """Debian's cron leaves jobs of every hour or oftener alone when clocks change."""
    timing = cron(expression, zone)
    for begin in ("2026-03-28T20:00:00+00:00", "2026-10-24T20:00:00+00:00"):
        found = [*islice(timing.ticks(at(begin)), 60)]
        gaps = {b - a for a, b in pairwise(found)}
        assert gaps <= {1_000_000, 541_000_000, 600_000_000, 3_600_000_000, 1_800_000_000}
    assert found == sorted(set(found))


def test_what_never_comes() -> None:
    assert next_tick(cron("* * */20 * 1L"), at("2026-01-01T00:00:00+00:00")) == NEVER


EXPRESSIONS = st.sampled_from(
    [
        *("* * * * *", "*/7 * * * *", "30 2 * * *", "0,30 1-3 * * *", "15 2 * * SUN", "0 0 1 * *"),
        *("*/13 30 2 * * *", "5,55 59 1 * * *", "0 12 * * 1-5", "59 23 28-31 * *", "* 2 * * *"),
    ]
)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut"]
)
# From a day before a change of clocks to a day after it.
MOMENTS = st.builds(
    lambda begin, seconds: begin + seconds * 1_000_000 + 1,
    st.sampled_from(
        [at(f"2026-{day}T00:00:00+00:00") for day in ("03-28", "10-24", "03-07", "10-31", "04-04")]
    ),
    st.integers(0, 2 * 86_400),
)


@settings(max_examples=150)
@given(EXPRESSIONS, ZONES, MOMENTS)
def test_ticks_follow_from_the_last_one_alone(expression: str, zone: str, moment: int) -> None:
    """Asked again after each tick it is the same as asked once."""
    timing = cron(expression, zone)
    at_once = [*islice(timing.ticks(moment), 30)]
    one_by_one, tick = [], moment
    for _ in range(30):
        tick = next_tick(timing, tick)
        one_by_one.append(tick)
    assert one_by_one == at_once
    assert all(a < b for a, b in pairwise([moment, *at_once]))


@settings(max_examples=100)
@given(EXPRESSIONS, ZONES, MOMENTS, st.integers(0, 3 * 86_400))
def test_the_last_tick_is_found_from_behind(
    expression: str, zone: str, moment: int, seconds: int
) -> None:
    timing, until = cron(expression, zone), moment + seconds * 1_000_000
    walked = [*takewhile(lambda tick: tick <= until, timing.ticks(moment))]
    assert last_tick(timing, moment, until) == (walked[-1] if walked else None)
