"""Which policy holds for a task: the rule's word, else the handler's, else the default's.

A rule is the operator's, for one tenant; a handler's is its author's, for everybody. So the rule
wins. A stored task may name a rule that the configuration no longer has; then the defaults hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from groupflow.core.app import RetryOverride
from groupflow.core.retry import RetryPolicy
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule, Override

Standing: TypeAlias = Literal["hold", "step-aside"]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for one task.

    Attributes:
        retry: when to try again.
        on_retry: whether its group waits behind it meanwhile.
        parks: whether its death stops its group.
        stage_order: whether it stays the head when it advances.
    """

    retry: RetryPolicy
    on_retry: Standing
    parks: bool
    stage_order: Standing


_NO_RULE = GroupRule(key="-")


class Policies:
    """The policies of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self._default = settings.retry
        self._rules = {rule.name: rule for rule in settings.groups}
        self._found: dict[tuple[str | None, RetryOverride | None], Policy] = {}

    def of(self, rule_name: str | None, handler: RetryOverride | None) -> Policy:
        """The policy for a task of that rule, run by that handler."""
        if rule_name not in self._rules:
            rule_name = None  # names come from stored tasks: only known ones are remembered
        found = self._found.get((rule_name, handler))
        if found is None:
            found = self._found[(rule_name, handler)] = self._resolve(rule_name, handler)
        return found

    def _resolve(self, rule_name: str | None, handler: RetryOverride | None) -> Policy:
        rule = self._rules.get(rule_name or "", _NO_RULE)
        words: tuple[Override | RetryOverride, ...] = (rule, handler) if handler else (rule,)
        return Policy(
            retry=RetryPolicy(
                max_attempts=_first(
                    (word.max_attempts for word in words), self._default.max_attempts
                ),
                interval=_first((word.interval for word in words), self._default.interval),
                jitter=_first((word.jitter for word in words), self._default.jitter),
            ),
            on_retry=rule.on_retry,
            parks=rule.on_dead == "park",
            stage_order=rule.stage_order,
        )


def _first(words: Iterable[_Value | None], default: _Value) -> _Value:
    return next((word for word in words if word is not None), default)
