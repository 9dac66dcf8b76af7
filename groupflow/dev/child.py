"""The daemon that restarts: a real `groupflow run`, and its log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from groupflow.servers.process import ServerProcess

_GRACE = 10.0  # seconds that a stop may take: above what `workers.drain` is set to
_LOOK_EVERY = 0.05  # seconds between two looks at its log


class Child:
    """One daemon's process after another, on one log."""

    def __init__(self, options: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = [sys.executable, "-m", "groupflow", "run", *options]
        self._environment = environment
        self._log = log
        self._process: ServerProcess | None = None
        self._is_told = False

    async def start(self) -> None:
        """Start a process in the current directory, where it looks for its application."""
        self._is_told = False
        self._process = await ServerProcess.spawn(
            self._command, log=self._log, environment=self._environment, folder=Path.cwd()
        )

    async def stop(self) -> None:
        """Let it finish what it runs, then leave."""
        if self._process is not None:
            await self._process.terminate(_GRACE)
            self._process = None

    def has_ended(self) -> bool:
        """Whether the process ended by itself; true once for each process."""
        if self._is_told or self._process is None or self._process.alive:
            return False
        self._is_told = True
        return True

    async def lines(self) -> AsyncIterator[str | None]:
        """The log of all its processes, line by line, for ever; ``None`` where one has ended."""
        self._log.touch()
        with self._log.open(errors="replace") as file:
            while True:
                ended = self.has_ended()  # asked first: then all its lines are in the file
                while line := file.readline():
                    yield line.rstrip("\n")
                if ended:
                    yield None
                await asyncio.sleep(_LOOK_EVERY)
