"""What all private servers share: a folder, ports that stay, a start that waits for an answer."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar, Self

from groupflow.core.errors import GroupflowError
from groupflow.servers.process import ServerFailed, ServerProcess

_STARTS = 5  # how often other ports are tried
_PROBE_EVERY = 0.02  # seconds between two looks at a port that does not answer yet
_PROBE_WITHIN = 1.0  # seconds that an accepted probe may take
_LAST_WORDS = 2_000  # characters of a log that an error shows
_LOW, _HIGH = 20_000, 32_000  # ports, tried first
_TRIES = 50  # of them


class MissingServer(GroupflowError):
    """A server's program is not installed."""

    def __init__(self, binaries: Sequence[str]) -> None:
        self.binaries = tuple(binaries)  # the programs that were looked for and not found
        # Debian's packages carry the names of their programs.
        super().__init__(
            f"{' and '.join(self.binaries)} not found. "
            f"Install what is missing: apt-get install {' '.join(self.binaries)}"
        )


class PortTaken(ServerFailed):
    """The server ended because another process has one of its ports."""


class PrivateServer(ABC):
    """A server that listens on 127.0.0.1 only, keeps all it writes in one folder, and ends with us.

    It may be used from several event loops, one after another.
    """

    name: ClassVar[str]
    programs: ClassVar[Sequence[str]]  # where it may be; the last is its package's name
    ready_within: ClassVar[float]  # seconds; generous, for a loaded machine
    stop_within: ClassVar[float] = 10.0  # seconds before a stop becomes a kill
    port_count: ClassVar[int] = 1
    taken_marks: ClassVar[Sequence[str]]  # what its log says where a port is taken

    def __init__(self, folder: Path, *, scratch: Path | None = None) -> None:
        """Describe a server; nothing is started.

        Args:
            folder: its own folder, made on start. It stays after a stop, for the next start.
            scratch: a folder to remove if this process dies without stopping the server; usually
                one that `folder` is in.
        """
        self.folder = folder  # for its data, its configuration and ``server.log``
        self._scratch = scratch
        self._ports: list[int] = []
        self._process: ServerProcess | None = None

    @classmethod
    def binary(cls) -> str:
        """The program's path.

        Raises:
            MissingServer: it is not installed.
        """
        for program in cls.programs:
            if found := shutil.which(program):
                return found
        raise MissingServer(cls.programs[-1:])

    @property
    @abstractmethod
    def url(self) -> str:
        """Where a client connects to."""

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments, for the ports chosen.

        Raises:
            MissingServer: the program is not installed.
        """

    @abstractmethod
    async def answers(self, pid: int) -> bool:
        """Whether this very server (`pid`) answers on the port, ready for work.

        Two launchers may choose the same port at the same time; then another server answers while
        ours is about to fail.

        Raises:
            OSError: no answer.
        """

    def environment(self) -> dict[str, str]:
        """The server's whole environment: the user's must not steer a private server."""
        environment = {
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
        }
        if libraries := os.environ.get("LD_LIBRARY_PATH"):  # our own Python, the guard's, needs it
            environment["LD_LIBRARY_PATH"] = libraries
        return environment

    def prepare(self) -> None:  # noqa: B027  most servers need no files
        """Write what the server reads from its folder on start."""

    @property
    def port(self) -> int:
        """The port for clients; it stays the same from the first start on.

        Raises:
            RuntimeError: it was never started.
        """
        if not self._ports:
            raise RuntimeError(f"{self.name} was never started")
        return self._ports[0]

    @property
    def pid(self) -> int:
        """The server's process id.

        Raises:
            RuntimeError: it is not running.
        """
        return self._running().pid

    @property
    def log(self) -> Path:
        """The file with all that the server said, over all its starts."""
        return self.folder / "server.log"

    @property
    def running(self) -> bool:
        """Whether its process is there, paused or not."""
        return self._process is not None and self._process.alive

    async def start(self) -> None:
        """Start it and wait until it answers; does nothing while it runs.

        Raises:
            MissingServer: its program is not installed.
            ServerFailed: it ended, or did not answer in time.
        """
        if self.running:
            return
        if self._process is not None:
            await self._process.wait()  # it ended by itself: wait for its guard
            self._process = None
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        kept = self._ports
        for starts_left in reversed(range(_STARTS)):
            with ExitStack() as held:
                self._ports = kept or _hold_ports(self.port_count, held)
                try:
                    self._process = await self._start_once()
                except BaseException as error:
                    self._ports = kept
                    if kept or not starts_left or not isinstance(error, PortTaken):
                        raise
                else:
                    # They stay held as long as we may start again: no other gets them meanwhile.
                    weakref.finalize(self, held.pop_all().close)
                    return

    async def stop(self) -> None:
        """Stop it in good order and wait until it is gone. Its data stay."""
        if self._process is not None:
            await self._process.terminate(self.stop_within)
            self._process = None

    async def kill(self) -> None:
        """End it as a crash does (SIGKILL) and wait until it is gone. `start` brings it back."""
        if self._process is not None:
            await self._process.kill()
            self._process = None

    async def restart(self) -> None:
        """Stop it and start it again on the same port, with the same data."""
        await self.stop()
        await self.start()

    async def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers, as with a hung machine.

        Raises:
            RuntimeError: it is not running.
        """
        self._running().signal_group(signal.SIGSTOP)

    async def resume(self) -> None:
        """Let a paused server go on.

        Raises:
            RuntimeError: it is not running.
        """
        self._running().signal_group(signal.SIGCONT)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.stop()

    def _running(self) -> ServerProcess:
        if self._process is None or not self._process.alive:
            raise RuntimeError(f"{self.name} is not running")
        return self._process

    async def _start_once(self) -> ServerProcess:
        command = self.command()
        self.prepare()
        said_before = self.log.stat().st_size if self.log.exists() else 0
        process = await ServerProcess.spawn(
            command, log=self.log, environment=self.environment(), scratch=self._scratch
        )
        try:
            await self._wait_until_ready(process, said_before)
        except BaseException:
            await process.kill()
            raise
        return process

    async def _wait_until_ready(self, process: ServerProcess, said_before: int) -> None:
        try:
            async with asyncio.timeout(self.ready_within):
                while process.alive:
                    if await self._probe(process.pid):
                        return
                    await asyncio.sleep(_PROBE_EVERY)
        except TimeoutError:
            problem = f"{self.name} did not answer within {self.ready_within:g} s"
        else:
            problem = f"{self.name} ended before it was ready"
        said = self.log.read_bytes()[said_before:].decode(errors="replace")
        kind = PortTaken if any(mark in said for mark in self.taken_marks) else ServerFailed
        raise kind(f"{problem}. Its last words: {said[-_LAST_WORDS:].strip() or '(none)'}")

    async def _probe(self, pid: int) -> bool:
        try:
            async with asyncio.timeout(_PROBE_WITHIN):
                return await self.answers(pid)
        except OSError:  # a TimeoutError is one
            return False


async def ask(port: int, question: bytes, *, until: bytes = b"") -> bytes:
    """Send bytes to a port of 127.0.0.1 and return what comes back, until the peer hangs up.

    Raises:
        OSError: no server listens there, or the connection broke.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reply = b""
    try:
        writer.write(question)
        while chunk := await reader.read(4096):
            reply += chunk
            if until and until in reply:
                break
        return reply
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def free_ports(count: int) -> list[int]:
    """Choose ports that no process has bound now, all different.

    Another process may still take one before the caller does.
    """
    with ExitStack() as held:
        return _hold_ports(count, held)


def _hold_ports(count: int, held: ExitStack) -> list[int]:
    """Choose free ports, and keep all others from them until `held` closes.

    A server may listen there meanwhile if it sets SO_REUSEADDR, as ours do: Linux lets it share a
    port with a socket that has that option too and does not listen.
    """
    chosen = []
    for _ in range(count):
        holder = held.enter_context(socket.socket())
        chosen.append(_bind(holder))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return chosen


def _bind(probe: socket.socket) -> int:
    """Bind a socket to a free port and return that port.

    Ports below the ephemeral range come first. While a server is down, the kernel may give a port
    inside that range to an outgoing connection, even to a client's attempt to reconnect, which then
    connects to itself; the restarted server can't have the port back.
    """
    chosen = (_LOW + secrets.randbelow(_HIGH - _LOW) for _ in range(_TRIES))
    for port in (*chosen, 0):
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        break
    return int(probe.getsockname()[1])
