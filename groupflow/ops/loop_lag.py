"""How late the event loop is, and when it last turned: a handler that blocks it stops the daemon.

The loop alone writes here. The lease's thread reads: plain floats, and a queue that C code reads
whole, which is sound under the GIL.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from time import monotonic

PACE = 0.5  # seconds between two looks
KEPT = 30  # looks: a scrape some seconds later still sees a short block


class LoopLag:
    """Sleeps for `PACE`, repeatedly, and measures how late it wakes."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=KEPT)
        self._due = inf
        self.turned = inf  # when (monotonic) the loop was last seen to turn; in the future at first

    async def run(self) -> None:
        while True:
            await self.run_once(PACE)

    async def run_once(self, pace: float) -> None:
        """One look, with `pace` seconds of sleep."""
        self.turned = monotonic()
        self._due = due = self.turned + pace
        await asyncio.sleep(pace)
        self._lags.append(max(0.0, monotonic() - due))

    @property
    def worst(self) -> float:
        """The longest delay, in seconds, of the last `KEPT` looks, and of one that is overdue."""
        return max(0.0, monotonic() - self._due, *self._lags)
