"""Which policy holds for a task: the rule's word, else the handler's, else the default's.

A rule is the operator's, for one tenant; a handler's is its author's, for everybody. So the rule
wins. A stored task may name a rule that the configuration no longer has; then the defaults hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from groupflow.core.retry import RetryOverride, RetryPolicy

Standing: TypeAlias = Literal["hold", "step-aside"]


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """A rule's word on its tasks; one without a rule has these defaults."""

    retry: RetryOverride = field(default_factory=RetryOverride)
    on_retry: Standing = "hold"
    parks: bool = False
    stage_order: Standing = "hold"
    run: int = 1  # most of a group's tasks that one claim gives


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for one task."""

    retry: RetryPolicy
    on_retry: Standing  # whether its group waits behind it until it is tried again
    parks: bool  # whether its death stops its group
    stage_order: Standing  # whether it stays the head when it advances


class Policies:
    def __init__(self, default: RetryPolicy, rules: Mapping[str, GroupPolicy]) -> None:
        self._default = default
        self._rules = {"": GroupPolicy(), **rules}
        self._found: dict[tuple[str, RetryOverride | None], Policy] = {}

    @property
    def runs(self) -> dict[str, int]:
        """By rule, how many tasks of a group one claim gives at most."""
        return {name: rule.run for name, rule in self._rules.items()}

    def of(self, rule_name: str | None, handler: RetryOverride | None) -> Policy:
        """The policy for a task of that rule, run by that handler."""
        name = rule_name or ""
        if name not in self._rules:
            name = ""  # names come from stored tasks: only known ones are remembered
        found = self._found.get((name, handler))
        if found is None:
            rule = self._rules[name]
            default = handler.over(self._default) if handler else self._default
            found = self._found[name, handler] = Policy(
                rule.retry.over(default), rule.on_retry, rule.parks, rule.stage_order
            )
        return found
