"""The wire: whose a reply is, how it begins, and how it ends for everybody who waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from groupflow.servers import RedisServer
from groupflow.store.wire import Wire, Wires, pack


class Transport:
    """Takes what is written, and nothing answers by itself."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.is_aborted = True

    def get_extra_info(self, _: str) -> None:
        return None


def _wire() -> tuple[Wire, Transport]:
    wire, transport = Wire(), Transport()
    wire.connection_made(cast(asyncio.Transport, transport))
    return wire, transport


async def _called(wire: Wire, *commands: str) -> asyncio.Task[list[Any]]:
    call = asyncio.create_task(wire.call([pack(each) for each in commands], 600.0))
    await asyncio.sleep(0)
    return call


async def test_replies_are_those_of_the_calls_in_their_order() -> None:
    """However they are cut into packets; an error among them is a value."""
    wire, transport = _wire()
    first, second = await _called(wire, "A", "B"), await _called(wire, "C")
    assert transport.written == [pack("A") + pack("B"), pack("C")]
    wire.data_received(b":1\r\n:")
    await asyncio.sleep(0)
    assert not first.done()
    wire.data_received(b"2\r\n-ERR no\r\n")
    assert await first == [1, 2]
    [error] = await second
    assert isinstance(error, ResponseError)
    assert wire.is_open


async def test_who_is_cancelled_leaves_the_replies_of_others_alone() -> None:
    wire, _ = _wire()
    first, second = await _called(wire, "A"), await _called(wire, "B")
    first.cancel()
    await asyncio.sleep(0)
    wire.data_received(b":1\r\n:2\r\n")
    assert await second == [2]
    assert wire.is_open


@pytest.mark.parametrize("nonsense", [b"HTTP/1.1 400\r\n\r\n", b":1\r\n:2\r\n"])
async def test_a_reply_without_a_call_ends_it(nonsense: bytes) -> None:
    """The wire can't tell whose the next reply is."""
    wire, transport = _wire()
    call = await _called(wire, "A")
    wire.data_received(nonsense)
    await asyncio.wait([call])
    assert not wire.is_open
    assert transport.is_aborted


async def test_the_first_reason_of_its_end_is_everybodys() -> None:
    wire, transport = _wire()
    calls = [await _called(wire, "A"), await _called(wire, "B")]
    calls[0].cancel()
    await asyncio.sleep(0)
    wire.close()
    wire.connection_lost(OSError("later"))
    assert transport.is_aborted
    assert not wire.is_open
    for call in (calls[1], await _called(wire, "C")):
        with pytest.raises(RedisConnectionError, match="the connection was closed"):
            await call
    assert len(transport.written) == 2


async def test_a_connection_that_broke_says_why() -> None:
    for error, words in ((OSError("reset by peer"), "reset by peer"), (None, "was closed")):
        wire, _ = _wire()
        call = await _called(wire, "A")
        wire.connection_lost(error)
        with pytest.raises(RedisConnectionError, match=words):
            await call


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A server with a password, and a socket besides."""
    path = str(tmp_path / "redis.sock")
    server = RedisServer(tmp_path / "data", extra=("--requirepass", "secret", "--unixsocket", path))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_it_logs_in_and_chooses_the_database(guarded: RedisServer, tmp_path: Path) -> None:
    urls = [
        f"redis://:secret@127.0.0.1:{guarded.port}/3",
        f"redis://default:secret@127.0.0.1:{guarded.port}/3",
        f"unix://:secret@{tmp_path}/redis.sock?db=3",
    ]
    for url in urls:
        wire = await Wires(url).open(20.0)
        [told] = await wire.call([pack("CLIENT", "INFO")], 20.0)
        assert " db=3 " in (told if isinstance(told, str) else told.decode())
        wire.close()


async def test_it_is_closed_where_it_is_refused(guarded: RedisServer) -> None:
    with pytest.raises(AuthenticationError):
        await Wires(f"redis://:wrong@127.0.0.1:{guarded.port}/0").open(20.0)
    with pytest.raises(ResponseError, match="NOAUTH"):
        await Wires(f"redis://127.0.0.1:{guarded.port}/1").open(20.0)
    with pytest.raises(ResponseError, match="out of range"):
        await Wires(f"redis://:secret@127.0.0.1:{guarded.port}/99").open(20.0)
    wire = await Wires(f"redis://:secret@127.0.0.1:{guarded.port}").open(20.0)
    [told] = await wire.call([pack("CLIENT", "LIST")], 20.0)
    text = told if isinstance(told, str) else told.decode()
    assert len(text.splitlines()) == 1
    assert " db=0 " in text
    wire.close()


async def test_dead_peers_are_seen_while_nothing_is_asked(redis_server: RedisServer) -> None:
    wire = await Wires(redis_server.url).open(20.0)
    assert wire._transport is not None
    stream = wire._transport.get_extra_info("socket")
    assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    wire.close()
