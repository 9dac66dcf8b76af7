"""The page's process, as the daemon sees it: it runs beside the work, and never in its way.

It answers HTTP, so that no request, however many or strange, takes the daemon's loop, files or
memory. The daemon starts it once work has begun, and again whenever it ends.

A socket that only the two have is the channel between them. Each message is a line of JSON. The
daemon sends the facts (its configuration, again after each reload) and answers about health and
metrics; the page sends those questions, and a sign of life. The channel's end says that the other
process is gone: the kernel closes it, however a process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import structlog

from groupflow.ops.health import PATHS, Health
from groupflow.ops.page.facts import Facts
from groupflow.settings.model import Http

log = structlog.get_logger("groupflow.http")

# What an interpreter and TLS need. Any other variable may be a secret of the handlers.
_INHERITED = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TERM", "NO_COLOR", "TMPDIR", "VIRTUAL_ENV"}
    | {"LD_LIBRARY_PATH"}
)
_INHERITED_KINDS = ("LC_", "PYTHON", "SSL_CERT_")
SIGN_OF_LIFE = 5.0  # seconds between two from the page's process
_SILENCE = 60.0  # seconds after which a page's process counts as stuck
_LATE = 1.0  # seconds behind that in which a message is still heard
_LONGEST = 64 * 1024 * 1024  # bytes of a message: all handlers and rules of a large configuration
_WORK_COMES_FIRST = 1.0  # seconds that the page waits for work to begin
_GOODBYE = 4.0  # seconds for it to end by itself
_FIRST_WAIT = 1.0  # seconds until it is started again; doubled each time
_LONGEST_WAIT = 30.0  # seconds
_STEADY = 60.0  # seconds after which a process that ends is started again with the first wait


class Channel:
    """One end of the channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, sock: socket.socket) -> Channel:
        """The channel on an end of a socket pair, which it owns from now on."""
        sock.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=_LONGEST))

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; lost where the other end is gone."""
        self._writer.write(orjson.dumps(message) + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """The next message, or ``None`` when the other end is gone."""
        try:
            line = await self._reader.readuntil()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return None
        message: dict[str, Any] = orjson.loads(line)
        return message

    def close(self) -> None:
        """Close it, which tells the other end."""
        self._writer.close()


class PageProcess:
    """Keeps a page's process running beside a daemon."""

    def __init__(
        self, http: Http, health: Health, facts: Callable[[], Facts], started: asyncio.Event
    ) -> None:
        """Starts nothing yet; `started` is set once work has begun.

        Raises:
            ConfigError: a token's file can't be used.
        """
        http.read_holders()  # so that a daemon whose page can't open fails at its start
        self._listen = http.listen
        self._health = health
        self._facts = facts
        self._started = started
        self._closing = asyncio.Event()
        self._channel: Channel | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Keep the page running until the block ends; does nothing where `listen` is empty."""
        if not self._listen:
            yield
            return
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._closing.set()
            self._hang_up()
            await asyncio.wait([task], timeout=_GOODBYE + 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def tell(self) -> None:
        if self._channel is not None:
            self._channel.send(self._facts().packed())

    async def _run(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._started.wait(), _WORK_COMES_FIRST)
        wait = _FIRST_WAIT
        loop = asyncio.get_running_loop()
        while not self._closing.is_set():
            began = loop.time()
            try:
                ended = await self._live()
            except Exception as error:  # noqa: BLE001  no fault of the page ends the daemon
                ended = repr(error)
            if self._closing.is_set():
                break
            wait = _FIRST_WAIT if loop.time() - began > _STEADY else wait
            log.error(
                "page.ended",
                how=ended,
                again_in=wait,
                remedy="Work goes on without a page; it is started again.",
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    async def _live(self) -> str:
        """Run the process once; returns how it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.to_thread(_start, theirs)
        try:
            self._channel = await Channel.open(ours)
            self.tell()
            while not self._closing.is_set():
                message = await _heard(self._channel)
                if message is None:
                    break
                if (path := message.get("ask")) in PATHS:
                    self._answer(path)
        except TimeoutError:
            process.kill()
            await asyncio.to_thread(process.wait)
            return f"killed: no sign of life for {_SILENCE:g} s"
        finally:
            self._hang_up()
            code = await asyncio.shield(asyncio.to_thread(_end, process))
        return f"exit {code}" if code >= 0 else f"signal {-code}"

    def _answer(self, path: str) -> None:
        async def answer() -> None:
            found = await self._health.of(path)
            if self._channel is not None:
                self._channel.send({"path": path, "answer": found})

        task = asyncio.create_task(answer())
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


async def _heard(channel: Channel) -> dict[str, Any] | None:
    """The page's next message.

    Raises:
        TimeoutError: it was silent for too long.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SILENCE):
            return await channel.receive()
    # A handler may have blocked the loop meanwhile: what has come is read now.
    async with asyncio.timeout(_LATE):
        return await channel.receive()


def _start(channel: socket.socket) -> subprocess.Popen[bytes]:
    """Start the page. It inherits the log (stderr), the channel, and little of the environment.

    The environment may hold secrets that the page doesn't need; those it needs come by the channel.
    """
    number = channel.fileno()
    # -P: the working directory has the handlers' modules, not the page's.
    command = [sys.executable, "-P", "-m", "groupflow", "page", "--channel", str(number)]
    return subprocess.Popen(  # noqa: S603  our own interpreter
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(number,),
        env={name: value for name, value in os.environ.items() if _is_inherited(name)},
    )


def _is_inherited(name: str) -> bool:
    """Whether a variable goes with it."""
    return name in _INHERITED or name.startswith(_INHERITED_KINDS)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Wait for the process's end, and kill it after `_GOODBYE`; returns its exit code."""
    try:
        return process.wait(_GOODBYE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
