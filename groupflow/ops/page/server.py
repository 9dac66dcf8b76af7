"""Serving the site at `[http] listen`, in the page's own process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import structlog

from groupflow.ops.listening import Listening
from groupflow.ops.page.parts import Parts
from groupflow.ops.page.serving import GOODBYE, Serving
from groupflow.settings.http_access import is_loopback, reading_is_open

log = structlog.get_logger("groupflow.http")


class PageServer:
    """Serves a page for as long as its process runs."""

    def __init__(self, parts: Parts) -> None:
        """Opens nothing yet.

        Args:
            parts: what the page shows.
        """
        self._parts = parts
        self._http = parts.facts.settings.http
        self._serving: Serving | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve until the block ends."""
        listening = Listening("http.listen", self._http.listen, self._serve)
        task = asyncio.create_task(listening.run())
        try:
            yield
        finally:
            listening.end()
            if self._serving is not None:
                self._serving.end()
                await asyncio.wait([task], timeout=GOODBYE + 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _serve(self, listening: socket.socket) -> None:
        self._serving = Serving(self._parts)
        self._announce(listening.getsockname()[1])
        try:
            await self._serving.run(listening)
        finally:
            self._serving = None

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
