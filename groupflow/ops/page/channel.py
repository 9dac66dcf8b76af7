"""The private channel between a daemon and its page's process: a socket that only the two have.

Each message is a line of JSON. The daemon sends the facts (its configuration, again after
each reload) and answers about health and metrics; the page sends those questions, and a sign of
life. The channel's end says that the other process is gone: the kernel closes it, however a process
ends.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import orjson

SIGN_OF_LIFE = 5.0  # seconds between two from the page's process
SILENCE = 60.0  # seconds after which a page's process counts as stuck
_LONGEST = 64 * 1024 * 1024  # bytes of a message: all handlers and rules of a large configuration


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
