"""The daemons of a soak: real `groupflow run` processes, that end with us."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from groupflow.servers.process import ServerProcess
from tests.endtoend.process import REPOSITORY, environment, groupflow
from tests.history.events import Journal, killed
from tests.verification.clock import Clock
from tests.verification.soak.handlers import JOURNAL

APP = "tests.verification.soak.handlers:app"
END_WITHIN = 30.0  # seconds before a SIGTERM becomes a SIGKILL


class Slot:
    """A place for one daemon: killed and started again, it may change its name.

    Attributes:
        index: which.
        name: of its present daemon.
        should_run: whether a daemon that isn't there has ended by itself.
        clock: the wall clock that its daemons see.
    """

    def __init__(self, index: int, folder: Path, config: Path) -> None:
        self.index = index
        self.name = f"d{index}"
        self.should_run = False
        self.log = folder / f"daemon-{index}.log"
        self.clock = Clock(folder / f"clock-{index}")
        self._folder = folder
        self._config = config
        self._renamed = 0
        self._process: ServerProcess | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its process is there, stopped or not."""
        return self._process is not None and self._process.alive

    async def start(self) -> None:
        """Start a daemon under the slot's name."""
        self._process = await self._spawn()
        self.should_run = True

    async def _spawn(self) -> ServerProcess:
        told = {"PYTHONPATH": str(REPOSITORY), JOURNAL: str(self._folder / "history.jsonl")}
        command = groupflow("run", "--config", self._config, "--app", APP, "--name", self.name)
        return await ServerProcess.spawn(
            command, log=self.log, environment=environment(**told, **self.clock.environment)
        )

    def rename(self) -> None:
        """Give the next daemon of this slot a name that nobody had."""
        self._renamed += 1
        self.name = f"d{self.index}-{self._renamed}"

    def pause(self) -> None:
        """Stop its process as it is."""
        self._running().signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let its process go on."""
        self._running().signal_group(signal.SIGCONT)

    async def kill(self) -> None:
        """kill -9."""
        self.should_run = False
        if self._process is not None and self._process.alive:
            await self._process.kill()
            Journal(self._folder / "history.jsonl").write(killed(self._process.pid))

    async def terminate(self) -> float:
        """SIGTERM, and wait for the end. Returns the seconds that it took."""
        self.should_run = False
        began = time.monotonic()
        if self._process is not None:
            await self._process.terminate(END_WITHIN)
        return time.monotonic() - began

    async def usurp(self) -> ServerProcess:
        """Start a second daemon under the same name; returns the process of the first."""
        first = self._running()
        self._process = await self._spawn()
        return first

    async def keep(self, process: ServerProcess) -> None:
        """Go back to the process that `usurp` returned, where it is the one that is left."""
        await self._running().wait()
        self._process = process

    def _running(self) -> ServerProcess:
        assert self._process is not None, f"{self.name} was never started"
        return self._process

    def last_words(self, lines: int = 12) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
