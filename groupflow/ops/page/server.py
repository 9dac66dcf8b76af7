"""Serving the site at `[http] listen`, in the page's own process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import structlog
import uvicorn

from groupflow.ops.listening import listening
from groupflow.ops.page.connections import HttpConnections
from groupflow.ops.page.facts import PageContext
from groupflow.ops.page.site import Extension, Site
from groupflow.settings.model import Http
from groupflow.settings.transport import is_loopback

log = structlog.get_logger("groupflow.http")

BACKLOG = 1024  # connections that wait to be accepted: a pool's workers may come all at once
GOODBYE = 1  # seconds for open answers at the end


class _Uvicorn(uvicorn.Server):
    """uvicorn that leaves the process's signals to their owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve_page(
    context: PageContext, extensions: Sequence[Callable[[PageContext], Extension]] = ()
) -> AsyncIterator[None]:
    """Serve a page, and the extensions of its API, until the block ends."""
    http = context.facts.settings.http

    async def serve(sock: socket.socket, end: asyncio.Event) -> None:
        _announce(http, sock.getsockname()[1])
        await _serve(Site(context, extensions), sock, end)

    async with listening("http.listen", http.listen, serve, GOODBYE + 1):
        yield


async def _serve(site: Site, sock: socket.socket, end: asyncio.Event) -> None:
    """Answer on a socket until told to end; then open answers may finish, streams first."""
    config = uvicorn.Config(
        site.app,
        http=HttpConnections().protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GOODBYE,
    )
    server = _Uvicorn(config)

    async def stop() -> None:
        await end.wait()
        await site.hurry()
        server.should_exit = True

    stopping = asyncio.create_task(stop())
    try:
        await server.serve(sockets=[sock])
    finally:
        stopping.cancel()
        await site.close()


def _announce(http: Http, port: int) -> None:
    host = http.listen.rpartition(":")[0]
    log.info("http.listening", url=f"http://{host}:{port}/")
    if not is_loopback(http.listen):
        what = "anybody who reaches it may look" if http.is_open else "token asked"
        log.warning(
            "http.open_to_others",
            listen=http.listen,
            found=f"plain HTTP beyond this machine; {what}",
            remedy="Put a proxy with TLS in front, or listen on 127.0.0.1.",
        )
