"""One server process under its guard, tied to this process's life and to no event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from groupflow.core.errors import GroupflowError

DRAINS_WITHIN = 10.0  # seconds that a daemon's stop may take: above its `workers.drain`

_GUARD = Path(__file__).with_name("guard.py")


class ServerFailed(GroupflowError):
    """A private server ended, or stayed silent, before it was ready; its last words are shown."""


class ServerProcess:
    """A running server. Made by `spawn`; useless once it ended."""

    def __init__(self, guard: subprocess.Popen[bytes], pid: int) -> None:
        self._guard = guard
        self.pid = pid  # the server's own, not its guard's; also its process group's

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        scratch: Path | None = None,
        folder: Path | None = None,
    ) -> ServerProcess:
        """Start a server in a process group of its own, with just this environment.

        Its output, and its guard's, is appended to `log`. It runs in the log's folder unless
        another `folder` is named. `scratch` is a folder to remove if this process dies without
        stopping the server.

        Raises:
            ServerFailed: the program can't be run.
        """
        # Not asyncio's subprocess: that belongs to one loop, and a server that a test run shares
        # outlives the loops of its tests.
        with log.open("ab") as said:
            said_before = said.tell()
            guard = subprocess.Popen(  # noqa: ASYNC220, S603
                [sys.executable, "-I", "-S", str(_GUARD), str(log), str(scratch or ""), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=dict(environment),
                cwd=folder or log.parent,
                start_new_session=True,  # a Ctrl-C at the terminal is ours to act on, not theirs
            )
        assert guard.stdin is not None and guard.stdout is not None  # noqa: S101, PT018  both pipes
        try:
            told = await asyncio.to_thread(guard.stdout.readline)
            if not told:
                words = (await asyncio.to_thread(log.read_bytes))[said_before:]
                last = words.decode(errors="replace").splitlines()[-1:]
                raise ServerFailed(": ".join([f"{command[0]} can't be run", *last]))
            return cls(guard, int(told))
        except BaseException:
            guard.stdin.close()  # the lifeline: all of the server dies now
            await asyncio.to_thread(guard.wait)
            raise
        finally:
            guard.stdout.close()

    @property
    def alive(self) -> bool:
        """Whether any of its processes may still run."""
        return self._guard.poll() is None

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to all of the server's process group, if there still is one."""
        if self.alive:  # afterwards another process may have the number
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def wait(self) -> None:
        """Wait until the server and all that it started are gone."""
        await asyncio.to_thread(self._guard.wait)
        self._cut_lifeline()

    async def terminate(self, grace: float) -> None:
        """Ask the server to end, kill it after `grace` seconds, and wait until it is gone.

        If the caller is cancelled meanwhile, the guard kills the server at once.
        """
        try:
            self.signal_group(signal.SIGTERM)
            self.signal_group(signal.SIGCONT)  # a paused process would never handle the SIGTERM
            try:
                async with asyncio.timeout(grace):
                    await self.wait()
            except TimeoutError:
                await self.kill()
        finally:
            self._cut_lifeline()

    async def kill(self) -> None:
        """Kill it as a crash does, and wait until it is gone."""
        try:
            self.signal_group(signal.SIGKILL)
            await self.wait()
        finally:
            self._cut_lifeline()

    def _cut_lifeline(self) -> None:
        """Give the server up: its remaining processes die now."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()


class DaemonProcess:
    """A `groupflow run` that restarts, on one log: of `groupflow dev` and the demo."""

    def __init__(
        self,
        options: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        scratch: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        """Starts nothing yet; `log`, `scratch` and `folder` are as of `ServerProcess.spawn`."""
        self.log = log
        self.process: ServerProcess | None = None
        command = [sys.executable, "-m", "groupflow", "run", *options]
        self._spawn = partial(
            ServerProcess.spawn,
            command,
            log=log,
            environment=environment,
            scratch=scratch,
            folder=folder,
        )

    async def start(self) -> None:
        """Start a process, in place of one that is killed as by a crash."""
        if self.process is not None:
            await self.process.kill()
        self.process = await self._spawn()

    async def stop(self) -> None:
        """Let it finish what it runs, then leave."""
        if self.process is not None:
            await self.process.terminate(DRAINS_WITHIN)
            self.process = None
