"""A server that is away: how long to wait before the next try, and when to say so.

The wait is short, growing, at most 0.5 s. The cap keeps the promise to be back at work within 3 s
of a server's return; the growth keeps a fleet from hammering a server that starts.

The log says that it is away once when it goes, once a minute, and once when it is back: callers try
several times a second, many at once, and not each failure is news.
"""

from __future__ import annotations

import random
from collections.abc import Callable

EVERY = 60.0  # seconds between two lines about one outage
TOGETHER = 5.0  # seconds within which other parts that go belong to the same outage


class Backoff:
    """Steps of 0.05, 0.1, 0.2 … 0.5 s, spread by ±20 % so that daemons don't march in step."""

    shortest = 0.05
    longest = 0.5

    def __init__(self) -> None:
        self._next = self.shortest

    def reset(self) -> None:
        """The server answers again."""
        self._next = self.shortest

    def next(self) -> float:
        """Seconds to wait now; the step after it is longer."""
        step, self._next = self._next, min(self._next * 2, self.longest)
        return step * random.uniform(0.8, 1.2)  # noqa: S311  not for secrets


class Outage:
    """What is away of one kind: a server, or some of its parts."""

    def __init__(self, clock: Callable[[], float], settles: float = 0.0) -> None:
        """Nothing is away yet.

        Args:
            clock: seconds that only rise.
            settles: seconds without a failure before an answer counts. Where several calls run at
                once, one sent before the return may fail late.
        """
        self.is_away = False  # whether anything is; asked often, and so no more than an attribute
        self._clock = clock
        self._settles = settles
        self._failed: dict[str, float] = {}  # parts that are away, and when each last failed
        self._began = 0.0
        self._told = 0.0

    def failed(self, part: str = "") -> dict[str, float] | None:
        """A try has failed.

        Returns:
            What to log beside the error, ``away_for`` in seconds where that is not new; ``None``
            where nothing is to be logged.
        """
        now = self._clock()
        is_new = part not in self._failed
        self._failed[part] = now
        if not self.is_away:
            self.is_away = True
            self._began = self._told = now
            return {}
        wait = TOGETHER if is_new else EVERY
        if now - self._told < wait:
            return None
        self._told = now
        return {"away_for": round(now - self._began, 1)}

    def answered(self, part: str = "") -> float | None:
        """A try went well.

        Returns:
            For how many seconds something was away, where this was the last of it; else ``None``.
        """
        now = self._clock()
        last = self._failed.get(part)
        if last is None or now - last < self._settles:
            return None
        del self._failed[part]
        if self._failed:
            return None
        self.is_away = False
        return round(now - self._began, 1)

    def forget(self, part: str = "") -> None:
        """It is not asked any more."""
        self._failed.pop(part, None)
        self.is_away = bool(self._failed)
