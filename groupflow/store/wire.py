"""One connection to Redis for scripts: commands out, replies in, first in first out.

redis-py's connection costs about 90 µs of processor time for one command and its reply, most of it
in pools, streams and a timeout that is a context manager; this costs about 20 (docs/adr/0014). What
happens once in a while (subscribing, INFO) is left to redis-py.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import hiredis
from redis.asyncio.connection import parse_url
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from groupflow.settings.transport import split_tls

# How a server refuses a user or a password: since 6.0, and before.
_REFUSALS = (
    *("WRONGPASS", "NOAUTH", "NOPERM"),
    *("ERR invalid password", "ERR Client sent AUTH", "ERR AUTH"),
)
_DROP = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time at all

Packed = bytes
"""A command in Redis's protocol, as `hiredis.pack_command` makes it."""


class _Waiting:
    """A caller: how many replies it still waits for, those that came, and its future."""

    __slots__ = ("done", "missing", "replies", "timer")

    timer: asyncio.TimerHandle  # checks whether its time is over

    def __init__(self, missing: int, done: asyncio.Future[list[Any]]) -> None:
        self.missing = missing
        self.replies: list[Any] = []
        self.done = done


class Wire(asyncio.Protocol):
    """A connection; once it is lost, every call fails and a new connection is needed."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(replyError=ResponseError)
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._lost: Exception | None = None
        self._heard = 0.0  # when bytes came last, or were last seen to go out (monotonic)
        self._written = self._sent = 0  # bytes; the second as they were last looked at
        self._is_sending = False  # at that time not all had gone out
        self.opened = monotonic()
        self.epoch: str | None = None  # of the server, where it was asked
        # When a call was last given more time since bytes came (monotonic); 0 if none ever was.
        self.extended = 0.0

    @property
    def is_open(self) -> bool:
        return self._lost is None

    @property
    def oldest(self) -> object | None:
        """The call that has waited longest for its answer; ``None`` where none waits."""
        return self._waiting[0] if self._waiting else None

    async def call(
        self,
        commands: Sequence[Packed],
        timeout: float,
    ) -> list[Any]:
        """Send commands and wait for all their replies; an error reply is a value here.

        They are written before anything is awaited. A caller that is cancelled leaves the
        connection sound: its replies are read and dropped.

        Args:
            commands: packed.
            timeout: seconds without a byte from the server: a long answer may take longer, as long
                as it comes, and so may large commands while they go out. Then the connection is
                given up, and with it every other call on it: their replies couldn't be told apart
                from late ones.

        Raises:
            redis.exceptions.TimeoutError: nothing came for that long, and replies are missing; any
                command may have run.
            redis.exceptions.ConnectionError: the connection broke; any command may have run.
        """
        if self._lost is not None:
            raise self._lost
        loop = asyncio.get_running_loop()
        waiting = _Waiting(len(commands), loop.create_future())
        self._waiting.append(waiting)
        data = b"".join(commands)
        self._written += len(data)
        cast(asyncio.WriteTransport, self._transport).write(data)
        waiting.timer = loop.call_later(timeout, self._look, waiting, timeout)
        try:
            return await waiting.done
        finally:
            waiting.timer.cancel()

    def close(self) -> None:
        """Close the connection; callers that still wait are told that it broke."""
        self._end(RedisConnectionError("the connection was closed"))

    def _look(self, waiting: _Waiting, timeout: float) -> None:
        """A call's time is over, counted from its beginning: give up, unless bytes came since."""
        # Where the loop was blocked, the answer was just read, and the caller isn't told yet.
        if waiting.done.done():
            return
        now = monotonic()
        if self._goes_out():
            self._heard = now
        rest = self._heard + timeout - now
        # Replies come in order: these bytes are the call's own, or of a call in front of it.
        if rest > 0:
            self.extended = now
            loop = asyncio.get_running_loop()
            waiting.timer = loop.call_later(rest, self._look, waiting, timeout)
        else:
            self._end(RedisTimeoutError(f"no byte of an answer for {timeout:.3g} s"))

    def _goes_out(self) -> bool:
        """Whether large commands are on their way, or were when this was last asked."""
        before, was_sending = self._sent, self._is_sending
        unsent = cast(asyncio.WriteTransport, self._transport).get_write_buffer_size()
        self._sent, self._is_sending = self._written - unsent, unsent > 0
        return (was_sending or unsent > 0) and self._sent > before

    def _end(self, why: Exception) -> None:
        if self._lost is None:
            self._lost = why
        if self._transport is not None:
            if self._waiting:
                self._forget()
            self._transport.abort()
        while self._waiting:
            done = self._waiting.popleft().done
            if not done.done():
                done.set_exception(why)

    def _forget(self) -> None:
        """Have the kernel drop what it has not brought to the server yet.

        It would go on trying for minutes, and a call that was given up would run behind those made
        since.
        """
        stream: socket.socket | None = cast(Any, self._transport).get_extra_info("socket")
        if stream is not None and stream.family != socket.AF_UNIX:
            with suppress(OSError):  # it is closed already
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)

    # What the event loop tells (asyncio.Protocol):

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; see dead peers even while nothing is asked."""
        self._transport = cast(asyncio.WriteTransport, transport)
        stream: socket.socket | None = transport.get_extra_info("socket")
        if stream is not None and stream.family != socket.AF_UNIX:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Hand replies to the callers that wait for them, in order."""
        self._heard = monotonic()
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                waiting = self._waiting[0]
                waiting.replies.append(reply)
                waiting.missing -= 1
                if not waiting.missing:
                    del self._waiting[0]
                    if not waiting.done.done():
                        waiting.done.set_result(waiting.replies)
        except (hiredis.ProtocolError, IndexError) as error:
            self._end(RedisConnectionError(f"it sent a reply that no call waits for: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(RedisConnectionError(str(exc) if exc else "the connection was closed"))


class Wires:
    def __init__(self, url: str) -> None:
        """Reads the URL (``redis://``, ``rediss://``, ``unix://``); nothing connects yet."""
        url, self._tls = split_tls(url)
        options = cast(dict[str, Any], parse_url(url))
        self._host = options.get("host", "localhost")
        self._port = options.get("port", 6379)
        self._path: str | None = options.get("path")
        self._database = options.get("db", 0)
        user, password = options.get("username"), options.get("password")
        self._credentials = [user, password or ""] if user else [password] if password else []

    async def open(self, timeout: float) -> Wire:
        """Connect, log in, choose the database, within so many seconds for all of it.

        Raises:
            TimeoutError: it took longer.
            OSError: no server is there, or TLS failed.
            AuthenticationError: the credentials were refused.
            redis.exceptions.RedisError: the connection broke, or the database isn't there.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            if self._path is not None:
                _, wire = await loop.create_unix_connection(Wire, self._path)
            else:
                _, wire = await loop.create_connection(Wire, self._host, self._port, ssl=self._tls)
            try:
                await self._greet(wire, timeout)
            except BaseException:
                wire.close()
                raise
            return wire

    async def _greet(self, wire: Wire, timeout: float) -> None:
        if self._credentials:
            (reply,) = await wire.call([pack("AUTH", *self._credentials)], timeout)
            if isinstance(reply, Exception):
                # A server that is full, or loading, says so here, and nothing of the password.
                is_refusal = str(reply).startswith(_REFUSALS)
                raise AuthenticationError(str(reply)) if is_refusal else reply
        if self._database:
            (reply,) = await wire.call([pack("SELECT", self._database)], timeout)
            if isinstance(reply, Exception):
                raise reply


def pack(*words: str | bytes | int) -> Packed:
    return cast(Packed, hiredis.pack_command(words))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ReplicaWait:
    """How many replicas must have a batch: before, it doesn't count as written.

    `WAIT` goes on the very connection that wrote, right behind the script: Redis then compares what
    replicas have acknowledged with what that connection wrote last. It holds up all calls behind it
    on that connection, so callers that wait for replicas have one of their own.
    """

    replicas: int
    timeout: float  # seconds to wait for them before saying so

    @property
    def command(self) -> Packed:
        """What follows a script."""
        return pack("WAIT", self.replicas, max(1, int(self.timeout * 1000)))

    async def wait(self, wire: Wire) -> int:
        """Wait once more, on the connection that wrote.

        Returns:
            How many replicas have what it wrote.

        Raises:
            redis.exceptions.RedisError: the connection has ended, or the server leads no more.
        """
        (reply,) = await wire.call([self.command], 2 * self.timeout)
        if isinstance(reply, Exception):
            raise reply
        return int(reply)
