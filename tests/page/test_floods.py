"""What comes by HTTP without a token: chunks, silence, endless bodies; each in miniature."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import orjson
import pytest

from groupflow.ops.page.connection import THROWN_AWAY
from groupflow.ops.page.door import FIRST_BYTE, HEAD, MOST, PARTING, REQUEST, Door, Phase
from tests.deadlines import deadline
from tests.page.raw import answer_of, connected, exchange
from tests.page.world import TOKEN, World

BUFFERED = 16 * 1024 * 1024  # bytes: more than the kernel keeps on both sides of a connection
PROBES = ("/livez", "/readyz", "/startupz", "/metrics")


def _head(world: World, *lines: str) -> bytes:
    host = world.url.rpartition("/")[2]
    return "\r\n".join(["POST /api/pause HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


def _sent_until_closed(sock: socket.socket, piece: bytes) -> int:
    """Send for as long as it goes; the bytes that were taken."""
    sent = 0
    while sent < 4 * BUFFERED:
        try:
            sent += sock.send(piece)
        except OSError:
            break
    return sent


class TestBodiesThatNobodyReads:
    @pytest.mark.parametrize("token", ["", TOKEN])
    def test_chunks(self, world: World, token: str) -> None:
        """A byte a chunk, without end: answered by the head alone, and cut off."""
        head = _head(
            world,
            f"Authorization: Bearer {token}" if token else "X-None: 1",
            "Content-Type: application/json",
            "Transfer-Encoding: chunked",
        )
        with connected(world.url) as sock:
            sock.sendall(head + b"1\r\nx\r\n" * 100)
            assert answer_of(sock).status == 411
            assert _sent_until_closed(sock, b"1\r\nx\r\n" * 10_000) < THROWN_AWAY + BUFFERED

    def test_chunks_by_both_names(self, world: World) -> None:
        """A length beside the chunks makes them no less chunks."""
        head = _head(world, "Transfer-Encoding: identity, chunked", "Content-Length: 5")
        with connected(world.url) as sock:
            sock.sendall(head + b"1\r\nx\r\n" * 100)
            assert answer_of(sock).status in (400, 411, 501)
            assert _sent_until_closed(sock, b"1\r\nx\r\n" * 10_000) < THROWN_AWAY + BUFFERED

    @pytest.mark.parametrize(
        ("authorization", "status"),
        [("X-None: 1", 401), (f"Authorization: Bearer {TOKEN}", 413)],
    )
    def test_a_body_of_a_gigabyte(self, world: World, authorization: str, status: int) -> None:
        head = _head(
            world, authorization, "Content-Type: application/json", "Content-Length: 1000000000"
        )
        with connected(world.url) as sock:
            sock.sendall(head)
            assert answer_of(sock).status == status
            assert _sent_until_closed(sock, b"x" * 65_536) < THROWN_AWAY + BUFFERED

    def test_the_answer_arrives_though_all_was_sent(self, world: World) -> None:
        """Closing does not tear the answer away from a client that sends first and then reads."""
        for _ in range(10):
            headers = [(b"Content-Type", b"application/json"), (b"Content-Length", b"200000")]
            answer = exchange(world.url, b"POST /api/pause HTTP/1.1", headers, b"x" * 200_000)
            assert answer.status == 401


class TestSilence:
    @pytest.fixture
    def silent(self, world: World) -> Iterator[list[socket.socket]]:
        """More connections that say nothing than there may be."""
        with ExitStack() as stack:
            yield [stack.enter_context(connected(world.url)) for _ in range(MOST + 8)]

    def test_nobody_is_kept_out(self, world: World, silent: list[socket.socket]) -> None:
        for path in (*PROBES, "/", "/api/overview"):
            answer = httpx.get(world.url + path, timeout=deadline(), trust_env=False)
            assert answer.status_code == 200, path

    def test_the_daemon_holds_none_of_them(self, world: World) -> None:
        """Its files are for tasks: those of strangers' connections are another process's."""
        before = _sockets(world.daemon.pid)
        with ExitStack() as stack:
            for _ in range(200):
                sock = stack.enter_context(connected(world.url))
                sock.sendall(b"GET /livez HTTP/1.1\r\n")
            answer = httpx.get(f"{world.url}/livez", timeout=deadline(), trust_env=False)
            assert answer.status_code == 200
            assert abs(_sockets(world.daemon.pid) - before) < 20

    def test_they_are_ended(self, world: World) -> None:
        with connected(world.url) as sock:
            assert sock.recv(1) == b""  # or the socket's own timeout ends the test


def _sockets(pid: int) -> int:
    links = (entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir())
    return sum(str(link).startswith("socket:") for link in links)


class _Guest:
    """A connection that does nothing."""

    def __init__(self, phase: Phase = Phase.SILENT, *, is_stream: bool = False) -> None:
        self.phase = phase
        self.since = 100.0
        self.stalled: float | None = None
        self.is_stream = is_stream
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


class TestDoor:
    def test_who_owes_longest_makes_way(self) -> None:
        door = Door(most=3)
        stream = _Guest(Phase.REQUEST, is_stream=True)
        guests = [stream, _Guest(), _Guest(), _Guest(), _Guest()]
        for guest in guests[:3]:
            door.enter(guest)
        door.served(guests[1])
        for guest in guests[3:]:
            door.enter(guest)
        assert [guest.is_cut for guest in guests] == [False, True, True, False, False]
        assert len(door) == 3

    def test_streams_make_way_last(self) -> None:
        door = Door(most=2)
        streams = [_Guest(Phase.REQUEST, is_stream=True) for _ in range(2)]
        for stream in streams:
            door.enter(stream)
        door.enter(_Guest())
        assert [stream.is_cut for stream in streams] == [True, False]

    @pytest.mark.parametrize(
        ("phase", "limit"),
        [
            (Phase.SILENT, FIRST_BYTE),
            (Phase.HEAD, HEAD),
            (Phase.REQUEST, REQUEST),
            (Phase.PARTING, PARTING),
        ],
    )
    def test_each_phase_has_its_time(self, phase: Phase, limit: float) -> None:
        door, guest = Door(most=3), _Guest(phase)
        stream = _Guest(Phase.REQUEST, is_stream=True)
        door.enter(guest)
        door.enter(stream)
        door.look(guest.since + limit)
        assert not guest.is_cut
        door.look(guest.since + limit + 0.1)
        assert guest.is_cut
        assert not stream.is_cut
        assert len(door) == 1

    def test_a_stream_that_nobody_reads_is_ended(self) -> None:
        door, stream = Door(most=3), _Guest(Phase.REQUEST, is_stream=True)
        stream.stalled = 100.0
        door.enter(stream)
        door.look(100.0 + REQUEST + 0.1)
        assert stream.is_cut


class TestJson:
    """Bodies whose every name or value would cost far more than its bytes."""

    def test_many_values(self, world: World) -> None:
        names = {f"n{number}": 1 for number in range(150_000)}
        answer = world.http.post("/api/route", json=names)
        assert answer.status_code == 400
        assert "over 10000 JSON values" in answer.json()["detail"]

    def test_many_unknown_names(self, world: World) -> None:
        """The first five are told, and no more than that is made of the others."""
        names = {f"n{number:04}" + "x" * 100: 1 for number in range(5_000)}
        answer = world.http.post("/api/route", json=names)
        assert answer.status_code == 400
        detail = answer.json()["detail"]
        assert "'n0004xxx" in detail
        assert detail.endswith("and 4995 more.")
        assert len(detail) < 600

    @pytest.mark.parametrize("body", [[], "text", 1, None])
    def test_no_object(self, world: World, body: object) -> None:
        content = orjson.dumps(body)
        headers = {"Content-Type": "application/json"}
        answer = world.http.post("/api/route", content=content, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["detail"] == "Send a JSON object."
