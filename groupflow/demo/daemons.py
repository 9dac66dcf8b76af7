"""The two daemons of the demo: real `groupflow run` processes, that end with the demo."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from groupflow.core.errors import GroupflowError
from groupflow.servers.process import ServerProcess

CONFIG = Path(__file__).parent / "demo.toml"
APP = "groupflow.demo.handlers:app"
NAMES = ("demo-1", "demo-2")

_GRACE = 10.0  # seconds that a stop may take: above `workers.drain` in demo.toml
_LAST_LINES = 15  # of its log, shown when a daemon has died


class DaemonDied(GroupflowError):
    """A daemon ended although the demo was not over; its last words are shown."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One running daemon.

    Attributes:
        name: its `--name`.
        process: the process, tied to the demo's life.
        log: what it wrote to stderr.
    """

    name: str
    process: ServerProcess
    log: Path

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            DaemonDied: it does not.
        """
        if not self.process.alive:
            said = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise DaemonDied("\n".join([f"The daemon {self.name} ended. Its last words:", *said]))


@asynccontextmanager
async def running_daemons(
    folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[list[Daemon]]:
    """Start the daemons, and stop them at the end: they finish what they run, then leave.

    Args:
        folder: where their logs go; it is removed if this process is killed.
        environment: theirs, with the servers in it.
    """
    daemons: list[Daemon] = []
    try:
        for name in NAMES:
            log = folder / f"{name}.log"
            process = await ServerProcess.spawn(
                _command(name), log=log, environment=environment, scratch=folder
            )
            daemons.append(Daemon(name, process, log))
        yield daemons
    finally:
        await asyncio.gather(*(daemon.process.terminate(_GRACE) for daemon in daemons))


def _command(name: str) -> list[str]:
    options = {"--config": str(CONFIG), "--app": APP, "--name": name}
    words = [word for option in options.items() for word in option]
    return [sys.executable, "-m", "groupflow", "run", *words]
