"""`[http] health` under connects: a probe is answered, and what they cost is counted."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Event, Thread

import pytest
import structlog

from groupflow.ops.health import ALIVE, MOST, HealthAnswer, Responder
from groupflow.servers.server import free_ports
from tests.deadlines import deadline, until


class Well:
    """Says that all is well."""

    async def of(self, path: str) -> HealthAnswer:
        return ALIVE


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """A responder's port, once it listens."""
    (port,) = free_ports(1)
    with structlog.testing.capture_logs() as said:
        async with Responder(f"127.0.0.1:{port}", Well()).serving(), asyncio.timeout(deadline()):
            await until(lambda: said)
            yield port


async def probe(port: int) -> bytes:
    """What a probe is answered, the first line of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return line


@contextmanager
def pouring(port: int, first: bytes) -> Iterator[list[int]]:
    """Connects without an end, each with its first bytes; how many there were."""
    counted, over, kept = [0], Event(), deque[socket.socket]()

    def pour() -> None:
        while not over.is_set():
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            with suppress(OSError):
                sock.send(first)
            kept.append(sock)
            counted[0] += 1
            if len(kept) > 300:
                kept.popleft().close()
            over.wait(0.0005)

    thread = Thread(target=pour)
    thread.start()
    try:
        yield counted
    finally:
        over.set()
        thread.join()
        while kept:
            kept.pop().close()


@pytest.mark.parametrize("first", [b"", b"GET /li", b"GET /livez HTTP/1.1\r\n\r\n"])
async def test_connects_that_pour_in_keep_no_probe_out(first: bytes) -> None:
    async with listening() as port:
        with pouring(port, first) as counted:
            await until(lambda: counted[0] >= 300)
            for _ in range(5):
                assert await probe(port) == b"HTTP/1.1 200 OK\r\n"


async def test_answers_that_hang_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the store says nothing: what is asked of the process alone is answered."""

    async def of(self: Well, path: str) -> HealthAnswer:
        if path == "/readyz":
            await asyncio.Event().wait()
        return ALIVE

    monkeypatch.setattr(Well, "of", of)
    async with listening() as port:
        asked = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * MOST)]
        for each in asked:
            each.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert await probe(port) == b"HTTP/1.1 200 OK\r\n"
        for each in asked:
            each.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nX: " + b"x" * 5000)
        with suppress(ConnectionError):  # a head without an end is cut off
            assert await reader.read() == b""
        writer.close()
