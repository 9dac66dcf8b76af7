"""The retry policy: a pure function of its numbers, the failed attempt and one random number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupflow.core.retry import RetryPolicy


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
    policy = RetryPolicy(max_attempts=7, interval=interval)
    assert [policy.delay_after(n, 0.0) for n in range(1, 8)] == expected
    assert policy.delay_after(8, 0.0) is None
    assert RetryPolicy(max_attempts=1, interval=interval).delay_after(1, 0.0) is None


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


@given(
    interval=st.floats(-31_536_000, 31_536_000).filter(lambda seconds: seconds != 0),
    jitter=st.floats(0, 1),
    chance=st.floats(0, 1),
    attempt=st.integers(1, 10**9),
)
def test_never_negative_and_never_beyond_the_interval(
    interval: float, jitter: float, chance: float, attempt: int
) -> None:
    policy = RetryPolicy(max_attempts=10**9 + 1, interval=interval, jitter=jitter)
    delay = policy.delay_after(attempt, chance)
    assert delay is not None
    assert 0 <= delay <= abs(interval)
