"""The retry policy: a pure function of its numbers, the failed attempt and one random number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupflow.core.retry import RetryPolicy


def delays(policy: RetryPolicy, *, chance: float = 0.0) -> list[float | None]:
    """The delay after each attempt, up to the one that has no other behind it."""
    return [policy.delay_after(n, chance) for n in range(1, policy.max_attempts + 1)]


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (-10, [10, 10, 10, 10, 10, 10, None]),
        (10, [1, 2, 4, 8, 10, 10, None]),
        (-0.5, [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, None]),
        (1, [1, 1, 1, 1, 1, 1, None]),
        (0.25, [0.25, 0.25, 0.25, 0.25, 0.25, 0.25, None]),
        (3, [1, 2, 3, 3, 3, 3, None]),
        (16, [1, 2, 4, 8, 16, 16, None]),
    ],
)
def test_spaces_attempts(interval: float, expected: list[float | None]) -> None:
    assert delays(RetryPolicy(max_attempts=7, interval=interval)) == expected


@pytest.mark.parametrize(
    ("max_attempts", "attempt", "goes_on"),
    [(1, 1, False), (2, 1, True), (2, 2, False), (5, 4, True), (5, 5, False), (5, 6, False)],
)
def test_ends_with_the_last_attempt(max_attempts: int, attempt: int, goes_on: bool) -> None:
    delay = RetryPolicy(max_attempts=max_attempts).delay_after(attempt, 0.5)
    assert (delay is not None) is goes_on


@pytest.mark.parametrize(
    ("interval", "jitter", "chance", "expected"),
    [
        (-10, 0.0, 1.0, 10),
        (-10, 0.3, 0.0, 10),
        (-10, 0.3, 1.0, 7),
        (-10, 1.0, 1.0, 0),
        (10, 0.5, 0.5, 0.75),
    ],
)
def test_jitter_takes_off_up_to_its_share(
    interval: float, jitter: float, chance: float, expected: float
) -> None:
    policy = RetryPolicy(max_attempts=3, interval=interval, jitter=jitter)
    assert policy.delay_after(1, chance) == pytest.approx(expected)


def test_a_late_attempt_of_many_is_still_within_the_cap() -> None:
    policy = RetryPolicy(max_attempts=10**9, interval=31_536_000.0)
    assert policy.delay_after(10**8, 0.0) == 31_536_000.0


@given(
    interval=st.floats(-31_536_000, 31_536_000).filter(lambda seconds: seconds != 0),
    jitter=st.floats(0, 1),
    chance=st.floats(0, 1),
    attempt=st.integers(1, 10_000),
)
def test_never_negative_and_never_beyond_the_interval(
    interval: float, jitter: float, chance: float, attempt: int
) -> None:
    policy = RetryPolicy(max_attempts=10_001, interval=interval, jitter=jitter)
    delay = policy.delay_after(attempt, chance)
    assert delay is not None
    assert 0 <= delay <= abs(interval)


@given(interval=st.floats(0.001, 31_536_000), attempt=st.integers(1, 10_000))
def test_a_progressive_interval_never_shrinks(interval: float, attempt: int) -> None:
    policy = RetryPolicy(max_attempts=10_002, interval=interval)
    earlier, later = policy.delay_after(attempt, 0.0), policy.delay_after(attempt + 1, 0.0)
    assert earlier is not None
    assert later is not None
    assert earlier <= later
