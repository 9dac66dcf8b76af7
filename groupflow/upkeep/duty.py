"""The loop of every duty that runs again and again beside the path; each has its own file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from groupflow.core.errors import GroupflowError, StoreUnavailable


class Duty:
    """A duty that any number of daemons may have: the scripts decide which one does it."""

    bears: type[Exception] = GroupflowError  # errors that a pass may have; others end the daemon

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[float]],
        again: float,
        level: str = "warning",
    ) -> None:
        """Binds one pass, which returns in how many seconds the next one is due.

        A failed pass is logged at `level` and tried again after `again` seconds.
        """
        self.name = name
        self.run_once = run_once
        self._again = again
        self._level = level
        self._stir = asyncio.Event()

    def wake(self) -> None:
        """Make a pass now: it may be due earlier than thought."""
        self._stir.set()

    async def run(self) -> None:
        """Make passes for ever."""
        while True:
            self._stir.clear()
            try:
                pause = await self.run_once()
            except self.bears as error:
                pause = self.failed(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stir.wait()

    def failed(self, error: Exception) -> float:
        """Log that a pass has failed. Returns the seconds until the next one."""
        log = structlog.get_logger(f"groupflow.{self.name}")
        # The log already says once for all duties that Redis is away.
        level = "debug" if isinstance(error, StoreUnavailable) else self._level
        getattr(log, level)(f"{self.name}.failed", error=str(error))
        return self._again
