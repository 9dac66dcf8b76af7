"""`python -m tests.verification.soak.attackers KIND PORT`: attacks a page, without a token.

At a pace of its own, so that the attack doesn't take all processor time from what is attacked.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from tests.verification.pacing import pause

HOST = "127.0.0.1"
CHUNKS = b"1\r\nx\r\n" * 5_000
HEAD = b"POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

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
            await pause(0.05)


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
    once, number, seconds = ATTACKERS[kind]

    async def again_and_again() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await once(port)
            await pause(seconds)

    await asyncio.gather(*(again_and_again() for _ in range(number)))


if __name__ == "__main__":
    asyncio.run(attack(sys.argv[1], int(sys.argv[2])))
