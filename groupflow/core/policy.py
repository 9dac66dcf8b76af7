"""Which policy holds for a task: the rule's, else the handler's, else the default.

A rule's comes from the operator, for one tenant; a handler's from its author, for all. So the rule
wins. A stored task may name a rule that the configuration no longer has; then the defaults hold.

How long to wait after a failed attempt follows from the policy and the attempt's number alone. A
negative interval spaces attempts evenly (-10 → 10, 10, 10 …). A positive one is the cap of delays
that double (10 → 1, 2, 4, 8, 10, 10 …).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

MOST_TOGETHER = 500  # tasks of a group under one claim: as many as one script hands out

Standing: TypeAlias = Literal["hold", "step-aside"]

# Rules of our own, for tasks that no message made; no rule of a configuration may be named so.
OWN_RULES = "scan:"
SHARD_RULE, ROW_RULE = f"{OWN_RULES}shard", f"{OWN_RULES}row"

_DOUBLINGS = 40  # beyond it every cap is reached, and a float power would only grow


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What happens after failures."""

    max_attempts: int = 5  # how many attempts there are in all
    interval: float = 10.0  # seconds; below 0 even spacing, above 0 progressive with this cap
    jitter: float = 0.0  # share of each delay, from 0 to 1, that is random

    def delay_after(self, attempt: int, chance: float) -> float | None:
        """Seconds from the failure of an attempt (from 1) to the next; ``None`` if none is left.

        `chance` is a random number from 0 to 1, for the jitter.
        """
        if attempt >= self.max_attempts:
            return None
        if self.interval < 0:
            delay = -self.interval
        else:
            delay = min(2.0 ** min(attempt - 1, _DOUBLINGS), self.interval)
        # Jitter only shortens, so that the interval stays the cap.
        return delay * (1.0 - self.jitter * chance)


@dataclass(frozen=True, slots=True)
class RetryOverride:
    """What a rule or a handler says about retries; ``None`` leaves it to the policy below."""

    max_attempts: int | None = None
    interval: float | None = None
    jitter: float | None = None

    def over(self, below: RetryPolicy) -> RetryPolicy:
        """The policy below, with these values in place of its own."""
        words = ((name, getattr(self, name)) for name in self.__slots__)
        return replace(below, **{name: word for name, word in words if word is not None})


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """A rule's policy for its tasks; a task without a rule has these defaults."""

    retry: RetryOverride = field(default_factory=RetryOverride)
    on_retry: Standing = "hold"
    parks: bool = False
    stage_order: Standing = "hold"
    run: int = 1  # most of a group's tasks that are run under one claim, one after another
    batch: int = 1  # most of them that are handed to one call under one claim


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for one task."""

    retry: RetryPolicy
    on_retry: Standing  # whether its group waits behind it until its retry
    parks: bool  # whether its death stops its group
    stage_order: Standing  # whether it stays the head when it advances
    batch: int = 1  # most tasks of its group that one call gets with it


# A shard always lines up behind other tasks of its group, such as its redriven rows. Its death
# parks its group, since no other task goes on with it.
_OWN = {
    SHARD_RULE: GroupPolicy(on_retry="step-aside", parks=True, stage_order="step-aside"),
    ROW_RULE: GroupPolicy(on_retry="step-aside"),
}


class Policies:
    def __init__(self, default: RetryPolicy, rules: Mapping[str, GroupPolicy]) -> None:
        self._default = default
        self._rules = {"": GroupPolicy(), **rules, **_OWN}
        self._found: dict[tuple[str, RetryOverride | None], Policy] = {}

    @property
    def runs(self) -> dict[str, int]:
        """By rule, how many tasks of a group one claim gives at most."""
        return {name: max(rule.run, rule.batch) for name, rule in self._rules.items()}

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
                rule.retry.over(default), rule.on_retry, rule.parks, rule.stage_order, rule.batch
            )
        return found
