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
from groupflow.operate.totals import Totals
from groupflow.ops.page.access import Gate
from groupflow.ops.page.connection import EVENTS
from groupflow.ops.page.endpoints import caller_of, refused_response
from groupflow.ops.page.problems import Refused
from groupflow.ops.page.streams import MOST, Stream, Streams
from groupflow.ops.snapshots import Snapshot

EVERY = 1.0  # seconds


class Live:
    def __init__(self, gate: Gate, overview: Snapshot[Totals]) -> None:
        self._gate = gate
        self._overview = overview
        self._streams = Streams()

    def route(self) -> Route:
        return Route(EVENTS, self._serve, methods=["GET"])

    def close(self) -> None:
        self._streams.end_all()

    async def _serve(self, request: Request) -> Response:
        try:
            self._gate.check_reading(request)
            stream = self._streams.admit(caller_of(request, self._gate))
            if stream is None:
                raise Refused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"{MOST} pages are open already, all of them with the token: close some.",
                )
        except Refused as refusal:
            return refused_response(refusal)
        return StreamingResponse(self._events(stream), media_type="text/event-stream")

    async def _events(self, stream: Stream) -> AsyncIterator[bytes]:
        try:
            while not stream.ended.is_set():
                yield await self._event()
                try:
                    async with asyncio.timeout(EVERY):
                        await stream.ended.wait()
                except TimeoutError:
                    continue
        finally:
            self._streams.leave(stream)

    async def _event(self) -> bytes:
        """The totals, or why there are none, which the page shows."""
        try:
            found = orjson.dumps(await self._overview.get())
        except GroupflowError as error:
            return b"event: trouble\ndata: %b\n\n" % orjson.dumps({"detail": str(error)})
        return b"event: overview\ndata: %b\n\n" % found
