"""Which policy holds for a task: the rule's word, else the handler's, else the default's."""

from __future__ import annotations

import pytest

from groupflow.core.policy import Policies, Policy
from groupflow.core.retry import RetryOverride, RetryPolicy
from groupflow.settings.model import RetryDefaults, Settings
from groupflow.settings.rules import GroupRule

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
