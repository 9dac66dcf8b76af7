"""Live: server-sent events with the totals, once a second, to any number of open pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from groupflow.core.errors import GroupflowError
from groupflow.ops.page.access import Gate
from groupflow.ops.page.endpoints import refused_response
from groupflow.ops.page.problems import Refused
from groupflow.ops.page.snapshots import Snapshot
from groupflow.store.overview import Overview

EVERY = 1.0  # seconds
MOST = 100  # open streams


class Live:
    """The stream of one daemon's page."""

    def __init__(self, gate: Gate, overview: Snapshot[Overview]) -> None:
        self._gate = gate
        self._overview = overview
        self._open = 0
        self.closing = asyncio.Event()

    def route(self) -> Route:
        """`/api/events`."""
        return Route("/api/events", self._serve, methods=["GET"])

    async def _serve(self, request: Request) -> Response:
        try:
            self._gate.check_reading(request)
            if self._open >= MOST:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST} pages are open already.")
        except Refused as refusal:
            return refused_response(refusal)
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            while not self.closing.is_set():
                yield await self._event()
                try:
                    async with asyncio.timeout(EVERY):
                        await self.closing.wait()
                except TimeoutError:
                    continue
        finally:
            self._open -= 1

    async def _event(self) -> bytes:
        """The totals, or why there are none: the page stays, and says so."""
        try:
            found = orjson.dumps(await self._overview.get())
        except GroupflowError as error:
            return b"event: trouble\ndata: %b\n\n" % orjson.dumps({"detail": str(error)})
        return b"event: overview\ndata: %b\n\n" % found
