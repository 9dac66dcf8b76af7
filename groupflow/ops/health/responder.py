"""Health and metrics at an address of the daemon's own, `[http] health`: for probes alone.

As little HTTP as a probe needs: the head of a request is read, answered, and the connection closed.
Nothing that comes here may cost tasks their loop: heads are short, connections few, accepted at a
pace, and short-lived; where there are too many, the one that has been silent longest makes way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import cast

import structlog

from groupflow.ops.health.answers import PATHS, Answer, Health
from groupflow.ops.listening import Listening

log = structlog.get_logger("groupflow.http")

MOST = 64  # connections at a time
HEAD = 4096  # bytes of a request's head: a probe's has a few hundred
PATIENCE = 5.0  # seconds for a whole request, its answer taken
PACE = 0.005  # seconds between two connections that are accepted: 200 a second
_NO_FILES = 1.0  # seconds until the next try where no connection can be accepted
_PLAIN = "text/plain; charset=utf-8"


class Responder:
    """Answers at `[http] health` for as long as the daemon runs."""

    def __init__(self, listen: str, health: Health) -> None:
        """Opens nothing yet.

        Args:
            listen: the address; empty for none.
            health: what is answered.
        """
        self._listen = listen
        self._health = health
        self._open: dict[_Connection, None] = {}

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer until the block ends."""
        if not self._listen:
            yield
            return
        task = asyncio.create_task(Listening("http.health", self._listen, self._serve).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for connection in list(self._open):
                connection.abort()

    async def _serve(self, listening: socket.socket) -> None:
        host = self._listen.rpartition(":")[0]
        log.info("health.listening", url=f"http://{host}:{listening.getsockname()[1]}/")
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
                await loop.connect_accepted_socket(lambda: _Connection(self), accepted)
            except OSError:  # too many open files, or gone already
                await asyncio.sleep(_NO_FILES)
            await asyncio.sleep(PACE)

    def enter(self, connection: _Connection) -> None:
        """A connection has come; the one that has waited longest makes way where it must."""
        if len(self._open) >= MOST:
            next(iter(self._open)).abort()
        self._open[connection] = None

    def leave(self, connection: _Connection) -> None:
        """A connection is over."""
        self._open.pop(connection, None)

    async def answer(self, head: bytes) -> tuple[Answer, bool]:
        """What a request is answered with, and whether with its body."""
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        if path not in PATHS:
            return Answer(HTTPStatus.NOT_FOUND, _PLAIN, b"only health and metrics are here\n"), True
        if method not in (b"GET", b"HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"only GET\n"), True
        return await self._health.of(path), method == b"GET"


class _Connection(asyncio.Protocol):
    """One probe's connection: a head comes, an answer goes, and that is all."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # a socket gives no other
        self._deadline = asyncio.get_running_loop().call_later(PATIENCE, self.abort)
        self._responder.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        self._responder.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        if self._answering is not None or self._transport is None:
            return  # more than was asked for
        self._head += data[: HEAD + 1 - len(self._head)]
        if b"\r\n\r\n" in self._head or b"\n\n" in self._head:
            self._transport.pause_reading()
            self._answering = asyncio.create_task(self._answer())
        elif len(self._head) > HEAD:
            self.abort()

    def abort(self) -> None:
        """End it, answered or not."""
        self._responder.leave(self)
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self) -> None:
        answer, has_body = await self._responder.answer(self._head)
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {int(answer.status)} {HTTPStatus(answer.status).phrase}\r\n"
            f"content-type: {answer.type}\r\ncontent-length: {len(answer.body)}\r\n"
            "cache-control: no-store\r\nx-content-type-options: nosniff\r\n"
            "connection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (answer.body if has_body else b""))
        self._transport.close()
