"""How long to wait after a failed attempt, by the policy and the attempt's number alone.

A negative interval spaces attempts evenly (-10 → 10, 10, 10 …). A positive one is the cap of delays
that double (10 → 1, 2, 4, 8, 10, 10 …).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
