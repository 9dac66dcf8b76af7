"""Live: server-sent events with the totals, once a second, to any number of open pages.

A stream costs little, but each is a connection that stays. At the limit, a new one ends the oldest
that showed no token (its page, if it is one, opens another). So neither a hundred idle streams nor
one address can keep the others out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http import HTTPStatus

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from groupflow.core.errors import GroupflowError
from groupflow.operate.totals import Totals
from groupflow.ops.page.access import Authorizer
from groupflow.ops.page.endpoints import Caller, caller_of
from groupflow.ops.page.problems import RequestRefused, refused_response
from groupflow.ops.snapshots import Snapshot

EVERY = 1.0  # seconds
MOST = 100  # in all
MOST_OF_ONE = 20  # of one address: the open tabs of one person, or of a few behind a proxy


@dataclass(eq=False, slots=True)
class Stream:
    caller: Caller  # whose it is
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # set once it has to end


class Streams:
    """The open streams, the oldest first."""

    def __init__(self) -> None:
        self._open: dict[Stream, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, caller: Caller) -> Stream | None:
        """Open a stream, and end another at the limit; ``None`` where none may be ended.

        A stream with the token is only ended for another with the token.
        """
        crowd = [s for s in self._open if s.caller.peer == caller.peer]
        if len(crowd) < MOST_OF_ONE:
            crowd = list(self._open) if len(self._open) >= MOST else []
        if crowd:
            anonymous = [s for s in crowd if not s.caller.shows_token]
            may_end = anonymous or (crowd if caller.shows_token else [])
            if not may_end:
                return None
            self.leave(may_end[0])
        stream = Stream(caller)
        self._open[stream] = None
        return stream

    def leave(self, stream: Stream) -> None:
        """End a stream, or take note that it has ended."""
        self._open.pop(stream, None)
        stream.ended.set()

    def end_all(self) -> None:
        for stream in list(self._open):
            self.leave(stream)


class Live:
    def __init__(self, authorizer: Authorizer, overview: Snapshot[Totals]) -> None:
        self._authorizer = authorizer
        self._overview = overview
        self.streams = Streams()

    async def serve(self, request: Request) -> Response:
        try:
            self._authorizer.check_reading(request)
            stream = self.streams.admit(caller_of(request, self._authorizer))
            if stream is None:
                raise RequestRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"{MOST} pages are open already, all of them with the token: close some.",
                )
        except RequestRefused as refusal:
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
            self.streams.leave(stream)

    async def _event(self) -> bytes:
        """The totals, or why there are none, which the page shows."""
        try:
            found = orjson.dumps(await self._overview.get())
        except GroupflowError as error:
            return b"event: trouble\ndata: %b\n\n" % orjson.dumps({"detail": str(error)})
        return b"event: overview\ndata: %b\n\n" % found
