"""`python -m tests.verification.bench.attackers KIND PORT`: attacks a page, without a token.

At a pace of its own, so that it costs the same processor time whoever is attacked: a page, or the
*sink* (KIND `sink`), which takes what comes, parses nothing, and answers that nobody may.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

HOST = "127.0.0.1"
CHUNKS = b"1\r\nx\r\n" * 5_000
HEAD = b"POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
SILENT_FOR = 5.0  # seconds that the sink bears a silent connection

Attacker = Callable[[int], Coroutine[Any, Any, None]]


def port_in(log: Path) -> int | None:
    """The port that a page named last in its log, or its daemon's."""
    said = [line for line in log.read_bytes().splitlines() if b'"http.listening"' in line]
    return urlsplit(orjson.loads(said[-1])["url"]).port if said else None


async def chunks(port: int) -> None:
    """A body of one-byte chunks, for as long as it is taken."""
    _, writer = await asyncio.open_connection(HOST, port)
    with contextlib.closing(writer):
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(CHUNKS)
            await writer.drain()
            await asyncio.sleep(0.05)


async def silence(port: int) -> None:
    """A connection that says nothing, for as long as it is borne."""
    reader, writer = await asyncio.open_connection(HOST, port)
    with contextlib.closing(writer):
        await reader.read()


async def reads(port: int) -> None:
    """What costs the store most: a filter that no dead letter passes, a task of 15 MiB."""
    for path in (b"/api/dead?reason=zzzz", b"/api/task?id=large"):
        reader, writer = await asyncio.open_connection(HOST, port)
        with contextlib.closing(writer):
            writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)
            await reader.read()


async def streams(port: int) -> None:
    """An event stream, followed for as long as it goes."""
    reader, writer = await asyncio.open_connection(HOST, port)
    with contextlib.closing(writer):
        writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while await reader.read(65_536):
            pass


ATTACKERS: dict[str, tuple[Attacker, int, float]] = {
    "chunks": (chunks, 30, 0.02),
    "silence": (silence, 600, 1.0),
    "reads": (reads, 8, 0.02),
    "streams": (streams, 120, 1.0),
}
"""By kind: what one connection does, how many there are, seconds until each comes again."""


async def attack(kind: str, port: int) -> None:
    """Attack for ever."""
    once, number, pause = ATTACKERS[kind]

    async def again_and_again() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await once(port)
            await asyncio.sleep(pause)

    await asyncio.gather(*(again_and_again() for _ in range(number)))


class _Sink(asyncio.Protocol):
    """One connection of the sink."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        asyncio.get_running_loop().call_later(SILENT_FOR, transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(REFUSED)
            self._transport.close()


async def sink(port: int) -> None:
    """Take what comes, for ever; says on which port."""
    server = await asyncio.get_running_loop().create_server(_Sink, HOST, port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Attack, or be attacked."""
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "sink":
        os.nice(10)  # as the page's process
        asyncio.run(sink(port))
    else:
        asyncio.run(attack(kind, port))


if __name__ == "__main__":
    main()
