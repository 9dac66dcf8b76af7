"""One server process under its guard, tied to this process's life but to no event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from groupflow.servers.errors import ServerFailed

_GUARD = Path(__file__).with_name("guard.py")


class ServerProcess:
    """A running server. Made by `spawn`; of no use any more once it ended."""

    def __init__(self, guard: subprocess.Popen[bytes]) -> None:
        self._guard = guard
        self._pid = 0

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        scratch: Path | None = None,
    ) -> ServerProcess:
        """Start a server in a process group of its own.

        Args:
            command: the program and its arguments; nothing is passed through a shell.
            log: the file that stdout and stderr are appended to.
            environment: the whole environment of the server.
            scratch: a folder to remove if this process dies without stopping the server.

        Raises:
            ServerFailed: the program can't be run.
        """
        process = cls(
            # Not asyncio's subprocess: that belongs to one loop, and a server that a test run
            # shares outlives the loops of its tests.
            subprocess.Popen(  # noqa: ASYNC220, S603
                [sys.executable, "-I", "-S", str(_GUARD), str(log), str(scratch or ""), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                cwd=log.parent,
                start_new_session=True,  # a Ctrl-C at the terminal is ours to act on, not theirs
            )
        )
        try:
            process._pid = await process._told_pid(command[0])
        except BaseException:
            await process._abandon()
            raise
        return process

    async def _told_pid(self, program: str) -> int:
        stdout = self._guard.stdout
        assert stdout is not None  # noqa: S101  we asked for a pipe
        line = await asyncio.to_thread(stdout.readline)
        stdout.close()
        if not line:
            raise ServerFailed(f"{program} can't be run")
        return int(line)

    async def _abandon(self) -> None:
        """Give it up before its id is known, and wait until it is gone."""
        self._cut_lifeline()
        await asyncio.to_thread(self._guard.wait)
        if self._guard.stdout is not None:
            self._guard.stdout.close()

    @property
    def pid(self) -> int:
        """The server's own process id, not its guard's; it is its process group's too."""
        return self._pid

    @property
    def alive(self) -> bool:
        """Whether anything of it may still run."""
        return self._guard.poll() is None

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to all of the server's process group, if there still is one."""
        if self.alive:  # afterwards the number may be somebody else's
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)

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
            self.signal_group(signal.SIGCONT)  # a paused process would never hear of the SIGTERM
            try:
                async with asyncio.timeout(grace):
                    await self.wait()
            except TimeoutError:
                await self.kill()
        finally:
            self._cut_lifeline()

    async def kill(self) -> None:
        """End it as a crash does, all at once, and wait until it is gone."""
        try:
            self.signal_group(signal.SIGKILL)
            await self.wait()
        finally:
            self._cut_lifeline()

    def _cut_lifeline(self) -> None:
        """Give the server up: whatever is left of it dies now."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
