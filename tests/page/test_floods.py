"""What comes by HTTP without a token: chunks, silence, endless bodies; each in miniature."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from groupflow.ops.page import connections
from groupflow.ops.page.connections import LIMITS, LINGERS, THROWN_AWAY, HttpConnections, Phase
from tests.deadlines import deadline
from tests.page.raw import answer_of, connected, exchange
from tests.page.world import TOKEN, World
from tests.turns import turns_until

BUFFERED = 16 * 1024 * 1024  # bytes: more than the kernel keeps on both sides of a connection


BOTH = "Transfer-Encoding: identity, chunked"
CHUNKS, CHUNK = "Transfer-Encoding: chunked", b"1\r\nx\r\n"
JSON, BEARER = "Content-Type: application/json", f"Authorization: Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("lines", "sent", "piece", "statuses"),
    [
        ([JSON, CHUNKS], CHUNK * 100, CHUNK, {411}),
        ([BEARER, JSON, CHUNKS], CHUNK * 100, CHUNK, {411}),
        # A length beside the chunks makes them no less chunks.
        ([BOTH, "Content-Length: 5"], CHUNK * 100, CHUNK, {400, 411, 501}),
        ([JSON, "Content-Length: 1000000000"], b"", b"x", {401}),
        ([BEARER, JSON, "Content-Length: 1000000000"], b"", b"x", {413}),
    ],
)
def test_a_body_without_end_is_answered_by_its_head_and_cut_off(
    world: World, lines: list[str], sent: bytes, piece: bytes, statuses: set[int]
) -> None:
    with connected(world.url) as sock:
        first = ("POST /api/pause HTTP/1.1", f"Host: {world.url.rpartition('/')[2]}")
        sock.sendall("\r\n".join([*first, *lines, "", ""]).encode() + sent)
        assert answer_of(sock).status in statuses
        sent_on = 0
        with suppress(OSError):
            while sent_on < 4 * BUFFERED:
                sent_on += sock.send(piece * 50_000)
        assert sent_on < THROWN_AWAY + BUFFERED


def test_the_answer_arrives_though_all_was_sent(world: World) -> None:
    """Closing does not tear the answer away from a client that sends first and then reads."""
    for _ in range(10):
        headers = [(b"Content-Type", b"application/json"), (b"Content-Length", b"200000")]
        answer = exchange(world.url, b"POST /api/pause HTTP/1.1", headers, b"x" * 200_000)
        assert answer.status == 401


LIMIT = 0.2  # seconds, in place of some seconds
HEAD = b"GET / HTTP/1.1\r\nhost: localhost\r\n"


class Served:
    """Connections in this process, to an app that answers once it is let go."""

    def __init__(self, *, lingers: bool = False) -> None:
        self.connections = HttpConnections(3)
        self.lingers = lingers
        self.goes_on = asyncio.Event()
        self.body = b"x"

    async def app(self, scope: Any, _receive: Any, send: Any) -> None:
        goes_on = self.goes_on
        if self.lingers:
            scope[LINGERS] = True
        await goes_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.body})

    @asynccontextmanager
    async def at(self) -> AsyncIterator[int]:
        """The port."""
        config = uvicorn.Config(self.app, log_config=None, ws="none", interface="asgi3")
        config.load()
        state, make = ServerState(), self.connections.protocol()
        server = await asyncio.get_running_loop().create_server(
            lambda: make(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
            "127.0.0.1",
            0,
        )
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for each in self.connections:
                each.cut()
            await turns_until(lambda: not len(self.connections))

    async def until_answering(self) -> None:
        """Wait until a connection that lingers has come to the app."""
        await turns_until(lambda: any(each.is_stream for each in self.connections))


async def opened(port: int, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """What came before the end."""
    found = b""
    async with asyncio.timeout(deadline()):
        with suppress(ConnectionError):
            while some := await reader.read(1000):
                found += some
    return found


class TestConnections:
    async def test_at_the_limit_the_idlest_is_closed(self) -> None:
        """One that had an answer stays, and so does one that may take its time."""
        served = Served(lingers=True)
        async with served.at() as port, asyncio.timeout(deadline()):
            lingering = await opened(port, HEAD + b"\r\n")
            await served.until_answering()
            served.lingers, served.goes_on = False, asyncio.Event()
            served.goes_on.set()
            answered = await opened(port, HEAD)
            silent = await opened(port, b"")
            await turns_until(lambda: len(served.connections) == 3)
            answered[1].write(b"\r\n")
            await answered[0].readuntil(b"\r\n\r\n")
            late = await opened(port, b"")
            assert await until_closed(silent[0]) == b""
            assert len(served.connections) == 3
            assert not any(each[0].at_eof() for each in (lingering, answered, late))
            for each in (lingering, answered, silent, late):
                each[1].close()

    @pytest.mark.parametrize(
        ("phase", "sent"),
        [
            (Phase.SILENT, b""),
            (Phase.HEAD, HEAD),
            (Phase.REQUEST, HEAD + b"\r\n"),
            (Phase.REQUEST, HEAD + b"content-length: 9\r\n\r\nx"),
        ],
    )
    async def test_each_phase_has_its_time(
        self, phase: Phase, sent: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(LIMITS, phase, LIMIT)
        async with Served().at() as port:
            reader, writer = await opened(port, sent)
            assert await until_closed(reader) == b""
            writer.close()

    async def test_an_answer_may_take_its_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(LIMITS, Phase.REQUEST, LIMIT)
        served = Served(lingers=True)
        async with served.at() as port:
            lingering, w0 = await opened(port, HEAD + b"connection: close\r\n\r\n")
            await served.until_answering()
            served.lingers = False
            reader, w1 = await opened(port, HEAD + b"\r\n")
            assert await until_closed(reader) == b"", "by which time the other's is over too"
            served.goes_on.set()
            assert b"200 OK" in await until_closed(lingering)
            w0.close()
            w1.close()

    async def test_an_answer_that_nobody_takes_is_ended(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "LIMITS", {**LIMITS, Phase.REQUEST: LIMIT})
        served = Served(lingers=True)
        served.body = b"x" * 4 * BUFFERED
        served.goes_on.set()
        async with served.at() as port:
            _, writer = await opened(port, HEAD + b"\r\n")
            await turns_until(lambda: len(served.connections))
            await turns_until(lambda: not len(served.connections))
            writer.close()
