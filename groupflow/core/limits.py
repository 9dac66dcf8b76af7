"""What may run at once, and how often it may start: of groups, tenants and types; or by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

_RATE = re.compile(r"(\d{1,9})\s*/\s*(s|min|h)(?:\s+burst\s+(\d{1,9}))?", re.ASCII)
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_FASTEST = 100_000  # starts a second; Redis itself gives no more
_MOST_BURST = 1_000_000
LONGEST_BY_HAND = 30 * 86400.0
"""Seconds for which a limit by hand may hold: a lasting one belongs in the configuration."""
LEAST_BY_HAND = 1.0
MOST_AT_ONCE = 1_000_000
LONGEST_NAME = 4096  # characters
_GRAIN = 0.02  # seconds by which a start may come early, so that a delay loses none


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something may start: a token bucket, as its theoretical arrival times (GCRA)."""

    text: str  # as it was written
    interval: float  # seconds between starts in the long run
    tolerance: float  # seconds that a start may come before its time

    def slower(self, times: int) -> Rate:
        """So many times slower; the same burst, where there is one."""
        tolerance = self.tolerance if self.tolerance > _GRAIN else _GRAIN
        return Rate(self.text, self.interval * times, tolerance)

    @classmethod
    def parse(cls, text: str) -> Rate | None:
        """Read ``10/s``, ``600/min``, ``10/h`` or ``10/s burst 50``; ``None`` of an empty text.

        Without a burst starts are evenly spaced, to within 20 ms.

        Raises:
            ValueError: it can't be read, or is out of bounds; the text says what would be right.
        """
        if not text.strip():
            return None
        found = _RATE.fullmatch(text.strip())
        if found is None:
            raise ValueError('Write a rate like "10/s", "600/min", "10/h" or "10/s burst 50".')
        number, burst = int(found[1]), int(found[3] or 1)
        if number < 1 or number > _FASTEST * _SECONDS[found[2]]:
            raise ValueError(f"Give the rate 1 start at least, and {_FASTEST} a second at most.")
        if burst < 1 or burst > _MOST_BURST:
            raise ValueError(f"Give the burst 1 to {_MOST_BURST} starts.")
        interval = _SECONDS[found[2]] / number
        return cls(text.strip(), interval, max((burst - 1) * interval, _GRAIN))


@dataclass(frozen=True, slots=True)
class Limit:
    """Of one group."""

    concurrency: int = 1  # tasks at once
    rate: Rate | None = None
    batch: int = 1  # tasks that wait for more until they are so many
    batch_wait: float = 0.0  # seconds for which they wait, since the oldest one came

    @property
    def is_serial(self) -> bool:
        """Whether it limits starts only to one task at a time."""
        return self.concurrency == 1 and self.rate is None

    @property
    def is_none(self) -> bool:
        """Whether it says only that a group is serial."""
        return self.is_serial and not self.batch_wait


@dataclass(frozen=True, slots=True)
class Debounce:
    """How long a task waits for a newer one of its group and type, which replaces it."""

    quiet: float  # seconds since the newest one came
    most: float  # seconds since the first of them came, at which the newest starts anyway
    # seconds for which a task that runs makes way for newer ones, too; None: it goes on
    running: float | None = None


@dataclass(frozen=True, slots=True)
class TenantLimit:
    """Of one tenant, grouped and plain tasks alike."""

    concurrency: int = 0  # tasks at once, 0 for any
    rate: Rate | None = None
    weight: int = 1  # its share of workers, where tenants share them

    def shared(self, parts: int) -> TenantLimit:
        """Its share in each of some partitions; at least one task at once."""
        if parts == 1:
            return self
        most = max(1, self.concurrency // parts) if self.concurrency else 0
        return TenantLimit(most, self.rate and self.rate.slower(parts), self.weight)


@dataclass(frozen=True, slots=True)
class TypeLimit:
    """Of all tasks whose types match a pattern."""

    concurrency: int = 0  # tasks at once, 0 for any
    rate: Rate | None = None

    def shared(self, parts: int) -> TypeLimit:
        """Its share in each of some partitions; at least one task at once."""
        if parts == 1:
            return self
        most = max(1, self.concurrency // parts) if self.concurrency else 0
        return TypeLimit(most, self.rate and self.rate.slower(parts))


def check_pattern(pattern: str) -> None:
    """Check whether a text can be a pattern of types.

    Raises:
        ValueError: it has a ``*`` that is not its end; the text says what would be right.
    """
    if "*" in pattern[:-1]:
        raise ValueError(f'Write a type, or a * at its end ("import.*"): not {pattern!r}.')


def check_order(patterns: Iterable[str]) -> None:
    """Check that each pattern of types may come to hold, where the first match does.

    Raises:
        ValueError: an earlier one matches all that one does; the text says what would be right.
    """
    before: list[str] = []
    for pattern in patterns:
        for earlier in before:
            if earlier.endswith("*") and pattern.startswith(earlier[:-1]):
                raise ValueError(
                    f"[types.{_quoted(pattern)}] never holds, since [types.{_quoted(earlier)}] "
                    "stands before it and matches all of its types: put it in front, or leave it "
                    "out."
                )
        before.append(pattern)


def _quoted(pattern: str) -> str:
    return f'"{pattern}"'


@dataclass(frozen=True, slots=True)
class Limits:
    """All that a configuration says."""

    rules: Mapping[str, Limit] = field(default_factory=dict)  # by the rule's name; those that limit
    every_tenant: TenantLimit = TenantLimit()
    tenants: Mapping[str, TenantLimit] = field(default_factory=dict)  # those that have their own
    types: Mapping[str, TypeLimit] = field(
        default_factory=dict
    )  # by pattern; the first match holds
    # by rule, of which pool (empty: daemons run it) and type the task is that says that one of its
    # groups is drained
    on_drained: Mapping[str, tuple[str, str]] = field(default_factory=dict)


Limited: TypeAlias = Literal["group", "tenant", "type"]


@dataclass(frozen=True, slots=True)
class HandLimit:
    """An operator's limit for a group, a tenant or a type, in place of its configuration."""

    kind: Limited
    name: str  # the group's key, the tenant's name in any application, or the pattern of types
    # tasks at once; None: as configured; of a tenant or a type 0: any
    concurrency: int | None = None
    rate: str | None = None  # as written; None: as configured, empty: as many as come

    def check(self, seconds: float) -> None:
        """Check whether it can hold, for so many seconds.

        Raises:
            ValueError: it can't; the text says what would be right.
        """
        if not self.name or len(self.name) > LONGEST_NAME:
            raise ValueError(f"Name a {self.kind}, in {LONGEST_NAME} characters at most.")
        if self.kind == "type":
            check_pattern(self.name)
        if self.concurrency is None and self.rate is None:
            raise ValueError("Give a concurrency, a rate, or both.")
        least = 1 if self.kind == "group" else 0
        if self.concurrency is not None and not least <= self.concurrency <= MOST_AT_ONCE:
            raise ValueError(f"Give a {self.kind} a concurrency of {least} to {MOST_AT_ONCE}.")
        if self.rate is not None:
            Rate.parse(self.rate)
        if not LEAST_BY_HAND <= seconds <= LONGEST_BY_HAND:
            raise ValueError(
                "Let it hold for 1 s to 30 days: what lasts belongs in the configuration."
            )

    @property
    def words(self) -> str:
        """What it says, for people."""
        said = []
        if self.concurrency is not None:
            said.append(f"{self.concurrency or 'any number'} at once")
        if self.rate is not None:
            said.append(self.rate or "any rate")
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class SetByHand(HandLimit):
    """A limit by hand that holds."""

    since: float = 0.0  # Unix seconds by Redis's clock, as the next
    until: float = 0.0  # when it ends by itself
    by: str = ""  # who set it
