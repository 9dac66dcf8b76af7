"""The site on a socket: uvicorn, with connections that are held to their time."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from groupflow.ops.listening import BACKLOG
from groupflow.ops.page.connection import connections_of
from groupflow.ops.page.door import Door
from groupflow.ops.page.parts import Parts
from groupflow.ops.page.site import Site

GOODBYE = 1  # seconds for open answers at the end


class _Server(uvicorn.Server):
    """uvicorn without its hands on the process's signals, which are its owner's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """A site while it is being served."""

    def __init__(self, parts: Parts) -> None:
        """Build the site.

        Raises:
            ConfigError: the token's file can't be used.
        """
        self._site = Site(parts)
        self._door = Door()
        config = uvicorn.Config(
            self._site.app,
            http=connections_of(self._door),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=GOODBYE,
        )
        self._server = _Server(config)

    async def run(self, listening: socket.socket) -> None:
        """Answer until told to end."""
        async with self._door.watched():
            await self._server.serve(sockets=[listening])

    def end(self) -> None:
        """Let open answers end, its streams first, and take no more."""
        self._site.live.close()
        self._server.should_exit = True
