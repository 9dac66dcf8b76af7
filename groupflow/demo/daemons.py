"""The two daemons of the demo: real `groupflow run` processes, that end with the demo."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from groupflow.core.errors import GroupflowError
from groupflow.demo.handlers import DAEMON_VARIABLE
from groupflow.servers.process import ServerProcess

CONFIG = Path(__file__).parent / "demo.toml"

_OPTIONS = ("--config", str(CONFIG), "--app", "groupflow.demo.handlers:app")
_GRACE = 10.0  # seconds that a stop may take: above `workers.drain` in demo.toml
_LOOK_EVERY = 0.1  # seconds
_LAST_LINES = 15  # of its log, shown when a daemon has died


class DaemonDied(GroupflowError):
    """A daemon ended although the demo was not over; its last words are shown."""


class Daemon:
    """A daemon under a name that it keeps over its processes."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self._environment = dict(environment) | {DAEMON_VARIABLE: name}
        self._process: ServerProcess | None = None

    async def start(self) -> None:
        """Start a process. If this one is killed, the folder goes too."""
        self._process = await ServerProcess.spawn(
            [sys.executable, "-m", "groupflow", "run", *_OPTIONS, "--name", self.name],
            log=self._log,
            environment=self._environment,
            scratch=self._log.parent,
        )

    async def crash(self) -> None:
        """Kill its process, as a crash does, and start another, as its supervisor would."""
        if self._process is not None:
            await self._process.kill()
        await self.start()

    async def stop(self) -> None:
        """Let it finish what it runs, then leave."""
        if self._process is not None:
            await self._process.terminate(_GRACE)

    async def page(self) -> str:
        """Where its page is, once its log says so.

        Raises:
            DaemonDied: it ended.
        """
        while True:
            self.check()
            for line in reversed(self._log.read_text(errors="replace").splitlines()):
                if '"http.listening"' in line:
                    return str(json.loads(line)["url"])
            await asyncio.sleep(_LOOK_EVERY)

    def check(self) -> None:
        """Raise `DaemonDied` unless it runs."""
        if self._process is None or not self._process.alive:
            said = self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise DaemonDied("\n".join([f"The daemon {self.name} ended. Its last words:", *said]))


@asynccontextmanager
async def running_daemons(
    folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[list[Daemon]]:
    """Start both, with their logs in a folder, and stop them at the end."""
    daemons = [Daemon(name, folder, environment) for name in ("demo-1", "demo-2")]
    try:
        for daemon in daemons:
            await daemon.start()
        yield daemons
    finally:
        await asyncio.gather(*(daemon.stop() for daemon in daemons))
