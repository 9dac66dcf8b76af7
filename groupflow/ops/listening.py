"""Listening at an address: logs once that it can't, and tries again; work goes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import structlog

log = structlog.get_logger("groupflow.http")

TRY_AGAIN = 15.0  # seconds
BACKLOG = 128  # connections that wait to be accepted

Serve = Callable[[socket.socket], Awaitable[None]]


class Listening:
    """Serves at an address until told to end, even if it loses the address meanwhile."""

    def __init__(self, setting: str, address: str, serve: Serve) -> None:
        """Nothing is opened yet.

        The log names the `setting` that has the address. `serve` serves on a socket that listens
        there, until it is cancelled or told to end.
        """
        self._setting = setting
        self._address = address
        self._serve = serve
        self._closing = asyncio.Event()

    def end(self) -> None:
        """Listen no more, once `serve` has returned."""
        self._closing.set()

    async def run(self) -> None:
        """Listen and serve. Tries a taken port again: its owner may end."""
        is_first = True
        while not self._closing.is_set():
            try:
                sock = await asyncio.to_thread(_bound, self._address)
                with contextlib.closing(sock):
                    await self._serve(sock)
            except OSError as error:
                if is_first:  # logged once: it would be the same every time
                    self._tell(error)
                is_first = False
            except Exception as error:
                log.error("http.failed", listen=self._address, error=repr(error), exc_info=error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), TRY_AGAIN)

    def _tell(self, error: OSError) -> None:
        log.warning(
            "http.not_listening",
            listen=self._address,
            error=error.strerror or str(error),
            remedy=f"Work goes on without it. Set {self._setting} to a free address, or empty; it "
            "is tried again until then.",
        )


def _bound(listen: str) -> socket.socket:
    """A socket that listens there.

    Raises:
        OSError: the name can't be resolved, or the address can't be had.
    """
    parts = urlsplit(f"//{listen}")
    family, kind, protocol, _, address = socket.getaddrinfo(
        parts.hostname, parts.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
