"""The wire: whose a reply is, how long it waits for one, and how it ends for all that wait."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from groupflow.core.errors import StoreUnavailable
from groupflow.servers import RedisServer
from groupflow.store import wire as wire_module
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from groupflow.store.scripts import Verb
from groupflow.store.wire import Wire, Wires, pack
from tests.deadlines import deadline


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_answer_that_came_while_the_loop_stood_counts(
    redis_server: RedisServer, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """It is read first; then the timer was found due, and the wire was given up for everybody."""

    async def ask() -> None:
        wire = await Wires(redis_server.url).open(5.0)

        async def block() -> None:
            """A handler that blocks until the answer is there, and the time for it is over."""
            begun = time.monotonic()
            stream = cast(Any, wire._transport).get_extra_info("socket")
            assert select.select([stream.fileno()], [], [], deadline())[0]
            while time.monotonic() < begun + 0.02:
                pass

        try:
            answer, _ = await asyncio.gather(wire.call([pack("PING")], 0.01), block())
            assert answer in ([b"PONG"], ["PONG"])
            assert wire.is_open
        finally:
            wire.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask())


async def test_a_call_that_was_given_up_is_not_brought_to_the_server_later() -> None:
    """What the kernel still has of it would run behind the calls that were made since."""
    came, may_read, over = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ends: list[bytes | str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await may_read.wait()
        try:
            while chunk := await reader.read(1 << 20):
                ends.append(chunk[-1:])
            ends.append("end")
        except ConnectionError:
            ends.append("reset")
        writer.close()
        over.set()

    # A window that is soon full, so that most of a call stays on our side.
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        listening.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(serve, sock=listening, limit=1 << 12)
        async with server, asyncio.timeout(deadline()):
            wire = await Wires(f"redis://127.0.0.1:{listening.getsockname()[1]}").open(5.0)
            await came.wait()
            with pytest.raises(RedisTimeoutError):
                await wire.call([pack("SET", "k", b"x" * (1 << 17))], 0.2)
            may_read.set()
            await over.wait()
    assert ends[-1] == "reset"


@pytest.mark.parametrize(
    "config",
    [{"min-replicas-to-write": "1"}, {"maxclients": "1"}, {"maxclients": "1", "requirepass": "pw"}],
    ids=["replicas", "connections", "connections and a password"],
)
async def test_trouble_that_passes_ends_no_call(tmp_path: Path, config: dict[str, str]) -> None:
    """A replica that restarts, and more connections than Redis takes: both are waited out."""
    async with RedisServer(tmp_path) as server:
        password = config.get("requirepass")
        url = server.url.replace("//", f"//:{password}@") if password else server.url
        async with Redis.from_url(server.url, single_connection_client=True) as admin:
            for name, value in config.items():
                await admin.config_set(name, value)
            client = StoreClient(url, Keys("passing"))
            try:
                with pytest.raises(StoreUnavailable):
                    await client.run(Verb.PROMOTE, 1)
                await admin.config_set("maxclients", "100")
                await admin.config_set("min-replicas-to-write", "0")
                await client.run(Verb.PROMOTE, 1)
            finally:
                await client.close()


class Transport:
    """Takes what is written, and nothing answers by itself."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False
        self.has_written = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.has_written.set()

    def abort(self) -> None:
        self.is_aborted = True

    def get_extra_info(self, _: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0


def _wire() -> tuple[Wire, Transport]:
    wire, transport = Wire(), Transport()
    wire.connection_made(cast(asyncio.Transport, transport))
    return wire, transport


async def _called(wire: Wire, transport: Transport, *commands: str) -> asyncio.Task[list[Any]]:
    """A call that waits for its answer."""
    transport.has_written.clear()
    call = asyncio.create_task(wire.call([pack(each) for each in commands], 600.0))
    await transport.has_written.wait()
    return call


async def test_replies_are_those_of_the_calls_in_their_order() -> None:
    """However they are cut into packets; an error among them is a value."""
    wire, transport = _wire()
    first, second = await _called(wire, transport, "A", "B"), await _called(wire, transport, "C")
    assert transport.written == [pack("A") + pack("B"), pack("C")]
    wire.data_received(b":1\r\n:")
    assert (await asyncio.wait([first], timeout=0.0))[0] == set()
    wire.data_received(b"2\r\n-ERR no\r\n")
    assert await first == [1, 2]
    [error] = await second
    assert isinstance(error, ResponseError)
    assert wire.is_open


async def test_who_is_cancelled_leaves_the_replies_of_others_alone() -> None:
    wire, transport = _wire()
    first, second = [await _called(wire, transport, each) for each in "AB"]
    first.cancel()
    await asyncio.wait([first])
    wire.data_received(b":1\r\n:2\r\n")
    assert await second == [2]
    assert wire.is_open


@pytest.mark.parametrize("nonsense", [b"HTTP/1.1 400\r\n\r\n", b":1\r\n:2\r\n"])
async def test_a_reply_without_a_call_ends_it(nonsense: bytes) -> None:
    """The wire can't tell whose the next reply is."""
    wire, transport = _wire()
    call = await _called(wire, transport, "A")
    wire.data_received(nonsense)
    await asyncio.wait([call])
    assert not wire.is_open
    assert transport.is_aborted


async def test_the_first_reason_of_its_end_is_everybodys() -> None:
    wire, transport = _wire()
    first, second = [await _called(wire, transport, each) for each in "AB"]
    first.cancel()
    await asyncio.wait([first])
    wire.connection_lost(OSError("reset by peer"))
    wire.close()
    assert not wire.is_open
    for call in (second, wire.call([pack("C")], 600.0)):
        with pytest.raises(RedisConnectionError, match="reset by peer"):
            await call
    assert len(transport.written) == 2


async def _answer_of(wire: Wire, *command: str) -> str:
    [told] = await wire.call([pack(*command)], 20.0)
    wire.close()
    return told if isinstance(told, str) else str(told.decode())


async def test_it_logs_in_and_chooses_the_database_or_is_closed(tmp_path: Path) -> None:
    """At a server with a password, and a socket besides."""
    path = str(tmp_path / "redis.sock")
    extra = ("--requirepass", "secret", "--unixsocket", path)
    async with RedisServer(tmp_path / "data", extra=extra) as server:
        at = f"127.0.0.1:{server.port}"
        for url in (
            *(f"redis://:secret@{at}/3", f"redis://default:secret@{at}/3"),
            f"unix://:secret@{path}?db=3",
        ):
            assert " db=3 " in await _answer_of(await Wires(url).open(20.0), "CLIENT", "INFO")
        refused: list[tuple[str, type[Exception], str]] = [
            (f"redis://:wrong@{at}/0", AuthenticationError, "."),
            (f"redis://{at}/1", ResponseError, "NOAUTH"),
            (f"redis://:secret@{at}/99", ResponseError, "out of range"),
        ]
        for url, error, words in refused:
            with pytest.raises(error, match=words):
                await Wires(url).open(20.0)
        text = await _answer_of(await Wires(f"redis://:secret@{at}").open(20.0), "CLIENT", "LIST")
        assert len(text.splitlines()) == 1
        assert " db=0 " in text


async def test_dead_peers_are_seen_while_nothing_is_asked(redis_server: RedisServer) -> None:
    wire = await Wires(redis_server.url).open(20.0)
    assert wire._transport is not None
    stream = wire._transport.get_extra_info("socket")
    assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    wire.close()


class SlowWire(Wire):
    """Each time that a call's time is over, the next piece of the answer has just come, if any."""

    far: socket.socket  # the other end

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self.pieces = pieces
        self.now = 0.0  # of its clock

    def close(self) -> None:
        super().close()
        self.far.close()

    def _look(self, waiting: Any, timeout: float) -> None:
        self.now += timeout
        if self.pieces:
            self.data_received(self.pieces.pop(0))
            self.now += timeout / 2
        super()._look(waiting, timeout)


async def slow_wire(monkeypatch: Any, *pieces: bytes) -> SlowWire:
    """A wire whose other end says nothing but these."""
    wire = SlowWire(list(pieces))
    monkeypatch.setattr(wire_module, "monotonic", lambda: wire.now, raising=False)
    near, wire.far = socket.socketpair()
    near.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: wire, sock=near)
    return wire


SLOW = [b"$10\r\n", b"0123", b"4567", b"89\r\n$1", b"\r\n!\r\n"]


@pytest.mark.parametrize("number", [0, 2, len(SLOW)])
async def test_an_answer_may_be_slow_as_long_as_it_comes(monkeypatch: Any, number: int) -> None:
    """A large body over a slow network; one that comes no further is given up, for all calls."""
    wire, is_whole = await slow_wire(monkeypatch, *SLOW[:number]), number == len(SLOW)
    try:
        assert not wire.extended
        calls = wire.call([pack("GET", "a")], 0.01), wire.call([pack("GET", "b")], 0.01)
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert not wire.pieces
        assert wire.is_open == is_whole
        assert bool(wire.extended) == (number > 0)
        if is_whole:
            assert list(found) == [[b"0123456789"], [b"!"]]
        else:
            assert [type(each) for each in found] == [RedisTimeoutError] * 2
            assert "no byte of an answer for 0.01 s" in str(found[0])
    finally:
        wire.close()


class SlowPeer(SlowWire):
    """The other end takes a part between any two looks, some times, and answers once it has all."""

    def __init__(self, times: int) -> None:
        super().__init__([])
        self.times = times

    def _look(self, waiting: Any, timeout: float) -> None:
        self.now += timeout
        if self.times:
            self.times -= 1
            with suppress(BlockingIOError):
                while part := self.far.recv(1 << 16):
                    if part.endswith(b"end\r\n"):
                        self.far.send(b"+OK\r\n")
        Wire._look(self, waiting, timeout)


@pytest.mark.parametrize("times", [2, 100])
async def test_a_large_command_may_be_slow_as_long_as_it_goes_out(
    monkeypatch: Any, times: int
) -> None:
    """A body over a slow network; once it goes no further it is given up, for all calls."""
    wire = SlowPeer(times)
    monkeypatch.setattr(wire_module, "monotonic", lambda: wire.now, raising=False)
    near, wire.far = socket.socketpair()
    for each in (near, wire.far):
        each.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: wire, sock=near)
    try:
        call = wire.call([pack("SET", "a", b"x" * 2_000_000 + b"end")], 0.01)
        if times == 2:
            with pytest.raises(RedisTimeoutError, match=r"no byte of an answer for 0\.01 s"):
                await call
        else:
            assert await call == [b"OK"]
    finally:
        wire.close()
