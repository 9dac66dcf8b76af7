"""The site on a socket: uvicorn, as a guest in the daemon's loop.

Importing this module imports all that only the page needs (starlette, uvicorn): `server` does so
late, and in a thread.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from groupflow.ops.page.parts import Parts
from groupflow.ops.page.server import BACKLOG, GOODBYE
from groupflow.ops.page.site import Site

_CONNECTIONS = 500  # at once; beyond, a plain 503


class _Server(uvicorn.Server):
    """uvicorn without its hands on the process's signals, which are the daemon's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """A daemon's site while it is being served."""

    def __init__(self, parts: Parts) -> None:
        """Build the site.

        Raises:
            ConfigError: the token's file can't be used.
        """
        self._site = Site(parts)
        config = uvicorn.Config(
            self._site.app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=GOODBYE,
        )
        self._server = _Server(config)

    async def run(self, listening: socket.socket) -> None:
        """Answer until told to end."""
        await self._server.serve(sockets=[listening])

    def end(self) -> None:
        """Let open answers end, its streams first, and take no more."""
        self._site.live.close()
        self._server.should_exit = True
