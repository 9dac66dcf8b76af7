"""Serving the site inside the daemon, whose work never depends on it.

A port that is taken, or an address that isn't there, is logged and tried again: the
page of a second daemon on this machine appears when the first one ends. Nothing that happens here
ends the daemon. Nor does it hold work up: what only the page needs is imported once the daemon has
begun to work (or can't, which the page then tells).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from groupflow.core.http_access import is_loopback, reading_is_open, token_of
from groupflow.ops.page.parts import Parts

if TYPE_CHECKING:
    from groupflow.ops.page.serving import Serving

log = structlog.get_logger("groupflow.http")

TRY_AGAIN = 15.0  # seconds
GOODBYE = 1  # seconds for open answers at the end
_WORK_COMES_FIRST = 1.0  # seconds that the page waits for work to begin
BACKLOG = 128  # connections that wait to be accepted


class PageServer:
    """Serves a daemon's page at `[http] listen` for as long as the daemon runs."""

    def __init__(self, parts: Parts) -> None:
        """Loads nothing yet.

        Args:
            parts: what the page shows.

        Raises:
            ConfigError: the token's file can't be used.
        """
        self._http = parts.settings.http
        token_of(self._http)  # a daemon whose page would never open says so at its start
        self._parts = parts
        self._closing = asyncio.Event()
        self._serving: Serving | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve until the block ends; nothing, where `listen` is empty."""
        if not self._http.listen:
            yield
            return
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._closing.set()
            if self._serving is not None:
                self._serving.end()
                await asyncio.wait([task], timeout=GOODBYE + 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._parts.started.wait(), _WORK_COMES_FIRST)
        is_first = True
        while not self._closing.is_set():
            try:
                await self._serve()
            except OSError as error:
                if is_first:  # said once: it would be the same every time
                    log.warning(
                        "http.not_listening",
                        listen=self._http.listen,
                        error=error.strerror or str(error),
                        remedy="Work goes on without a page. Set http.listen to a free address, "
                        "or empty; it is tried again until then.",
                    )
                is_first = False
            except Exception as error:  # a fault of the page's is no reason to stop work
                log.error("http.failed", error=repr(error), exc_info=error)
            self._serving = None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), TRY_AGAIN)

    async def _serve(self) -> None:
        """Listen and serve until told to end.

        Raises:
            OSError: it can't listen there.
        """
        sock = await asyncio.to_thread(_bound, self._http.listen)
        with contextlib.closing(sock):
            self._serving = await asyncio.to_thread(_load, self._parts)
            self._announce(sock.getsockname()[1])
            await self._serving.run(sock)

    def _announce(self, port: int) -> None:
        host = self._http.listen.rpartition(":")[0]
        log.info("http.listening", url=f"http://{host}:{port}/")
        if not is_loopback(self._http.listen):
            what = (
                "anybody who reaches it may look" if reading_is_open(self._http) else "token asked"
            )
            log.warning(
                "http.open_to_others",
                listen=self._http.listen,
                found=f"plain HTTP beyond this machine; {what}",
                remedy="Put a proxy with TLS in front, or listen on 127.0.0.1.",
            )


def _load(parts: Parts) -> Serving:
    from groupflow.ops.page.serving import Serving  # noqa: PLC0415  200 ms of imports

    return Serving(parts)


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
