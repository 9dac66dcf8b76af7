"""Serving the site inside the daemon, whose work never depends on it.

A port that is taken, or an address that isn't there, is logged and tried again: the
page of a second daemon on this machine appears when the first one ends. Nothing that happens here
ends the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import structlog
import uvicorn

from groupflow.core.http_access import is_loopback, reading_is_open
from groupflow.core.settings import Http
from groupflow.ops.page.site import Site

log = structlog.get_logger("groupflow.http")

TRY_AGAIN = 15.0  # seconds
_BACKLOG = 128
_CONNECTIONS = 500  # at once; beyond, a plain 503
_GOODBYE = 1  # seconds for open answers at the end


class _Server(uvicorn.Server):
    """uvicorn without its hands on the process's signals, which are the daemon's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PageServer:
    """Serves a site at `[http] listen` for as long as the daemon runs."""

    def __init__(self, http: Http, site: Site) -> None:
        self._http = http
        self._site = site
        self._server: _Server | None = None
        self.port: int | None = None
        """Where it listens; ``None`` while it doesn't."""

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
            self._site.live.closing.set()
            if self._server is not None:
                self._server.should_exit = True
                await asyncio.wait([task], timeout=_GOODBYE + 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        is_first = True
        while not self._site.live.closing.is_set():
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
            self._server, self.port = None, None
            if not self._site.live.closing.is_set():
                await asyncio.sleep(TRY_AGAIN)

    async def _serve(self) -> None:
        """Listen and serve until told to end.

        Raises:
            OSError: it can't listen there.
        """
        sock = await asyncio.to_thread(_bound, self._http.listen)
        with contextlib.closing(sock):
            self.port = sock.getsockname()[1]
            config = uvicorn.Config(
                self._site.app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                limit_concurrency=_CONNECTIONS,
                timeout_graceful_shutdown=_GOODBYE,
            )
            self._server = _Server(config)
            self._announce()
            await self._server.serve(sockets=[sock])

    def _announce(self) -> None:
        host = self._http.listen.rpartition(":")[0]
        log.info("http.listening", url=f"http://{host}:{self.port}/")
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
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
