"""How long the wire waits for an answer that comes in pieces."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from groupflow.store import wire as wire_module
from groupflow.store.wire import Wire, pack


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


async def slow_wire(monkeypatch: pytest.MonkeyPatch, *pieces: bytes) -> SlowWire:
    """A wire whose other end says nothing but these."""
    wire = SlowWire(list(pieces))
    monkeypatch.setattr(wire_module, "monotonic", lambda: wire.now, raising=False)
    near, wire.far = socket.socketpair()
    near.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: wire, sock=near)
    return wire


async def test_an_answer_may_take_longer_than_the_timeout_as_long_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large body over a slow network: it was given up half-way, each time again."""
    wire = await slow_wire(monkeypatch, b"$10\r\n", b"0123", b"4567", b"89\r\n$1", b"\r\n!\r\n")
    try:
        assert not wire.extended
        calls = wire.call([pack("GET", "a")], 0.01), wire.call([pack("GET", "b")], 0.01)
        first, second = await asyncio.gather(*calls)
        assert first == [b"0123456789"]
        assert second == [b"!"]
        assert wire.is_open
        assert wire.extended
    finally:
        wire.close()


@pytest.mark.parametrize("pieces", [[], [b"$10\r\n", b"0123"]])
async def test_an_answer_that_comes_no_further_is_given_up(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]
) -> None:
    wire = await slow_wire(monkeypatch, *pieces)
    try:
        calls = wire.call([pack("GET", "a")], 0.01), wire.call([pack("GET", "b")], 0.01)
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in found] == [RedisTimeoutError] * 2
        assert "no byte of an answer for 0.01 s" in str(found[0])
        assert not wire.is_open
        assert not wire.pieces
    finally:
        wire.close()
