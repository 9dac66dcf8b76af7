"""How long to wait before the next try, when a server is away: short, growing, at most 0.5 s.

The cap keeps the promise to be back at work within 3 s of a server's return; the growth keeps a
fleet from hammering a server that starts.
"""

from __future__ import annotations

import random


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
