"""HTTP by hand: requests that no client would send."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.deadlines import deadline

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        status: the HTTP status.
        type: the content type as it was said.
        body: all of it.
    """

    status: int
    type: str
    body: bytes


def connected(url: str) -> socket.socket:
    """A connection to a page."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=deadline())


def exchange(url: str, first: bytes, headers: Iterable[Header], body: bytes = b"") -> Answer:
    """Send one request as it is, and read its answer."""
    sent = list(headers)
    if not any(name.lower() == b"host" for name, _ in sent):
        sent.insert(0, (b"Host", urlsplit(url).netloc.encode()))
    lines = [first, *(name + b": " + value for name, value in sent), b"Connection: close", b"", b""]
    with connected(url) as sock:
        sock.sendall(b"\r\n".join(lines) + body)
        return answer_of(sock)


def answer_of(sock: socket.socket) -> Answer:
    """Read one answer."""
    with http.client.HTTPResponse(sock) as response:
        response.begin()
        return Answer(response.status, response.headers.get("content-type", ""), response.read())
