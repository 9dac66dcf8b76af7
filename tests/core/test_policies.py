"""Retries, the policy that holds for a task, and rates as operators write them."""

from __future__ import annotations

import pytest

from groupflow.core.limits import Limit, Rate, TenantLimit
from groupflow.core.policy import Policies, Policy, RetryOverride, RetryPolicy
from groupflow.settings.model import RetryDefaults, Settings
from groupflow.settings.rules import GroupRule


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (-10, [10, 10, 10, 10, 10, 10, None]),
        (10, [1, 2, 4, 8, 10, 10, None]),
        (0.25, [0.25, 0.25, 0.25, 0.25, 0.25, 0.25, None]),
        (3, [1, 2, 3, 3, 3, 3, None]),
    ],
)
def test_spaces_attempts(interval: float, expected: list[float | None]) -> None:
    policy = RetryPolicy(max_attempts=7, interval=interval)
    assert [policy.delay_after(n, 0.0) for n in range(1, 8)] == expected
    assert policy.delay_after(8, 0.0) is None
    assert RetryPolicy(max_attempts=1, interval=interval).delay_after(1, 0.0) is None


def test_jitter_takes_off_up_to_its_share() -> None:
    """So no delay is below 0, or beyond the interval."""
    for interval, jitter, chance, expected in (
        (-10, 0.0, 1.0, 10),
        (-10, 0.3, 0.0, 10),
        (-10, 0.3, 1.0, 7),
        (-10, 1.0, 1.0, 0),
        (10, 0.5, 0.5, 0.75),
    ):
        policy = RetryPolicy(max_attempts=3, interval=interval, jitter=jitter)
        assert policy.delay_after(1, chance) == pytest.approx(expected)


DEFAULT = RetryPolicy(max_attempts=5, interval=10, jitter=0.1)


def policies(*rules: GroupRule) -> Policies:
    retry = RetryDefaults(max_attempts=5, interval=10, jitter=0.1)
    return Settings(retry=retry, groups=rules).policies()


def rule(**words: object) -> GroupRule:
    return GroupRule.model_validate({"name": "crm", "key": "{tenant_id}", **words})


FULL_RULE = {"max_attempts": 2, "interval": -3, "jitter": 0.2}
FULL_HANDLER = RetryOverride(max_attempts=7, interval=20, jitter=0.3)


@pytest.mark.parametrize(
    ("words", "handler", "expected"),
    [
        ({}, None, DEFAULT),
        ({}, RetryOverride(), DEFAULT),
        (FULL_RULE, None, RetryPolicy(2, -3, 0.2)),
        ({}, FULL_HANDLER, RetryPolicy(7, 20, 0.3)),
        (FULL_RULE, FULL_HANDLER, RetryPolicy(2, -3, 0.2)),
        # Each number on its own: one may be the rule's, another the handler's, a third the default.
        ({"max_attempts": 2}, RetryOverride(interval=-1), RetryPolicy(2, -1, 0.1)),
        ({"interval": -3}, RetryOverride(max_attempts=7, interval=1), RetryPolicy(7, -3, 0.1)),
        # A zero is a word too.
        ({"jitter": 0.0}, RetryOverride(jitter=0.9), RetryPolicy(5, 10, 0.0)),
        ({}, RetryOverride(jitter=0.0), RetryPolicy(5, 10, 0.0)),
    ],
)
def test_the_rule_wins_over_the_handler_and_that_over_the_default(
    words: dict[str, object], handler: RetryOverride | None, expected: RetryPolicy
) -> None:
    assert policies(rule(**words)).of("crm", handler).retry == expected


@pytest.mark.parametrize("name", [None, "", "gone"])
def test_without_its_rule_a_task_has_the_handlers_words_and_the_defaults(name: str | None) -> None:
    strict = rule(**FULL_RULE, on_retry="step-aside", on_dead="park", stage_order="step-aside")
    policy = policies(strict).of(name, RetryOverride(max_attempts=7))
    assert policy == Policy(RetryPolicy(7, 10, 0.1), "hold", parks=False, stage_order="hold")


def test_the_rule_alone_says_how_its_group_stands() -> None:
    aside = rule(on_retry="step-aside", on_dead="park", stage_order="step-aside")
    policy = policies(aside).of("crm", None)
    assert policy == Policy(DEFAULT, "step-aside", parks=True, stage_order="step-aside")


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
    assert [Rate.parse(none) for none in ("", "  ")] == [None, None]
    assert Limit(1, None).is_none


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
