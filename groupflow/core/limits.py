"""What may run at once, and how often it may start: of a group, by its rule, and of a tenant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_RATE = re.compile(r"(\d{1,9})\s*/\s*(s|min|h)(?:\s+burst\s+(\d{1,9}))?", re.ASCII)
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_FASTEST = 100_000  # starts a second; Redis itself gives no more
_MOST_BURST = 1_000_000
_GRAIN = 0.02  # seconds by which a start may come before its time, so that none is lost to a delay


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something may start: a token bucket, as its theoretical arrival times (GCRA)."""

    text: str  # as it was written
    interval: float  # seconds between starts in the long run
    tolerance: float  # seconds that a start may come before its time

    def slower(self, times: int) -> Rate:
        """So many times slower; as many at once where that is more than one."""
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

    @property
    def is_none(self) -> bool:
        """Whether it says no more than that a group is serial."""
        return self.concurrency == 1 and self.rate is None


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
class Limits:
    """All that a configuration says."""

    rules: Mapping[str, Limit] = field(default_factory=dict)  # by the rule's name; those that limit
    every_tenant: TenantLimit = TenantLimit()
    tenants: Mapping[str, TenantLimit] = field(default_factory=dict)  # those that have their own
