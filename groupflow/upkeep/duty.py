"""The loop of all that is done again and again beside the path; what is done is a file each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from groupflow.core.errors import GroupflowError, StoreUnavailable


class Duty:
    """A duty that any number of daemons may have: the scripts decide who does it."""

    bears: type[Exception] = GroupflowError  # what a pass may fail of; all else ends the daemon

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[float]],
        again: float,
        level: str = "warning",
    ) -> None:
        """Binds one pass, which answers in how many seconds the next one is due.

        One that failed is tried again after so many seconds, and logged at `level`.
        """
        self.name = name
        self.run_once = run_once
        self._again = again
        self._level = level
        self._stir = asyncio.Event()

    def wake(self) -> None:
        """Do it now: it may be due earlier than thought."""
        self._stir.set()

    async def run(self) -> None:
        """Do it for ever."""
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
        """Say that a pass has failed. Returns the seconds until the next one."""
        log = structlog.get_logger(f"groupflow.{self.name}")
        # That Redis is away is in the log already, once for all duties.
        level = "debug" if isinstance(error, StoreUnavailable) else self._level
        getattr(log, level)(f"{self.name}.failed", error=str(error))
        return self._again
