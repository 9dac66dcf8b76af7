"""Rates as operators write them."""

from __future__ import annotations

import pytest

from groupflow.core.limits import Limit, Rate, TenantLimit


@pytest.mark.parametrize(
    ("text", "interval", "tolerance"),
    [
        ("10/s", 0.1, 0.02),
        ("600/min", 0.1, 0.02),
        ("90/h", 40.0, 0.02),
        (" 10 / s  burst 50 ", 0.1, 4.9),
        ("1/s burst 1", 1.0, 0.02),
        ("100000/s", 0.00001, 0.02),
    ],
)
def test_a_rate_is_read(text: str, interval: float, tolerance: float) -> None:
    rate = Rate.parse(text)
    assert rate is not None
    assert rate.interval == pytest.approx(interval)
    assert rate.tolerance == pytest.approx(tolerance)
    assert rate.text == text.strip()


def test_a_tenants_share_in_each_partition() -> None:
    """At least one at once; so much slower; and as large a burst."""
    whole = TenantLimit(10, Rate.parse("10/s burst 5"), 3)
    assert whole.shared(1) == whole
    part = whole.shared(4)
    assert (part.concurrency, part.weight) == (2, 3)
    assert part.rate is not None
    assert part.rate.interval == pytest.approx(0.4)
    assert TenantLimit(2).shared(4) == TenantLimit(1)
    assert TenantLimit().shared(4) == TenantLimit()


@pytest.mark.parametrize("text", ["", "  "])
def test_no_rate(text: str) -> None:
    assert Rate.parse(text) is None
    assert Limit(1, Rate.parse(text)).is_none


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, 'like "10/s"') for text in ("10", "/s", "10/d", "10/sec", "1.5/s", "1e3/s")),
        *((text, 'like "10/s"') for text in ("10/s burst", "10/s 5", "٣/s")),
        ("0/s", "at least"),
        ("1/s burst 0", "1 to 1000000 starts"),
        *((text, "100000 a second") for text in ("100001/s", "999999999/min")),
    ],
)
def test_what_is_no_rate_says_how_one_is_written(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Rate.parse(text)
