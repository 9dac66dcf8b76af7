"""How late the event loop is: a handler that blocks it stops the daemon, its renewals included."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

PACE = 0.5  # seconds between two looks
KEPT = 30  # looks: what blocks for a moment is still seen by a scrape some seconds later


class LoopLag:
    """Sleeps a little, again and again, and sees how much too late it wakes."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.run_once(PACE)

    async def run_once(self, pace: float) -> None:
        """One look.

        Args:
            pace: seconds to sleep.
        """
        due = monotonic() + pace
        await asyncio.sleep(pace)
        self._lags.append(max(0.0, monotonic() - due))

    @property
    def worst(self) -> float:
        """The longest delay, in seconds, of the last `KEPT` looks."""
        return max(self._lags, default=0.0)
