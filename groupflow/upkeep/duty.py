"""The loop of all that is done again and again beside the path; what is done is a file each."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar

import structlog

from groupflow.core.errors import GroupflowError


class Duty(ABC):
    """A duty that any number of daemons may have: the scripts decide who does it."""

    name: ClassVar[str]  # in the log
    again = 1.0  # seconds after which a pass that failed is tried again
    bears: ClassVar[type[Exception]] = GroupflowError  # anything else ends the daemon

    def __init__(self) -> None:
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
        log.warning(f"{self.name}.failed", error=str(error))
        return self.again

    @abstractmethod
    async def run_once(self) -> float:
        """One pass. Returns the seconds until the next one is due."""
