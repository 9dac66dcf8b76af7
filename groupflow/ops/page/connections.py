"""The page's connections: uvicorn's, with limits on their number and time, and on what they read.

- At the limit, a new connection closes the one that has gone longest without an answered request,
  so that silent ones keep no caller out.
- Each has a time limit for the first byte, for the head, and for the rest of a request.
- It doesn't read a body in chunks: parsing a chunk costs the same for a byte as for a kilobyte, so
  such bodies cost the most. The middleware answers 411.
- It doesn't read a body that still comes when the answer is complete: it sends the answer, drops
  unparsed bytes for a moment, so that a client that still sends can read its answer, and closes.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MOST = 8192  # connections: each worker that waits for a pool has one
_FEWEST = 16
_OTHER_FILES = 128  # for Redis, the log, and connections accepted but not yet closed
HEAD_BYTES = 16 * 1024  # of a request's head, which may have a group key in it
THROWN_AWAY = 256 * 1024  # bytes of an unread body, beyond which the connection is cut
EVENTS = "/api/events"
LINGERS = "groupflow.lingers"
"""The key that a request's scope has where its caller may take its time."""


class Phase(Enum):
    """The phases of a connection, from its first silence to after an answer."""

    SILENT = "silent"
    HEAD = "head"
    REQUEST = "request"
    PARTING = "parting"
    IDLE = "idle"


LIMITS = {
    Phase.SILENT: 5.0,  # seconds for the first byte
    Phase.HEAD: 10.0,  # for a request's head, from its first byte on
    Phase.REQUEST: 30.0,  # for the rest of a request and its answer, event streams apart
    Phase.PARTING: 10.0,  # for the client to take the last bytes of an answer
}  # of an idle connection uvicorn has one of its own: 5 s


class HttpConnections:
    """The open connections, the longest without an answered request first."""

    def __init__(self, most: int | None = None) -> None:
        """Starts empty; the default limit is what the process's files allow, up to `MOST`."""
        self._most = most or _allowed()
        self._open: dict[HttpConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[HttpConnection]:
        return iter(self._open)

    def enter(self, connection: HttpConnection) -> None:
        """Add a connection; at the limit, cut the oldest idle one, event streams last."""
        if len(self._open) >= self._most:
            oldest = next((each for each in self._open if not each.is_stream), None)
            oldest = oldest or next(iter(self._open))
            self.leave(oldest)
            oldest.cut()
        self._open[connection] = None

    def served(self, connection: HttpConnection) -> None:
        """Move a connection that had an answer to the end."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def leave(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)

    def protocol(self) -> type[asyncio.Protocol]:
        """What makes a connection, as uvicorn calls it."""
        return cast("type[asyncio.Protocol]", partial(HttpConnection, self))


def _allowed() -> int:
    """How many connections leave enough of the process's files for all else.

    Raises the process's limit of files as far as it may.
    """
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST
    wanted = MOST + _OTHER_FILES
    if files < wanted:
        files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(_FEWEST, min(MOST, files - _OTHER_FILES))


class _Requests(h11.Connection):
    """A connection's requests; stops before a body of chunks."""

    has_chunks = False

    def next_event(self) -> Any:
        """The next part of a request; ``PAUSED`` before a chunk, so that no more is read."""
        if self.has_chunks:
            return h11.PAUSED
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.has_chunks = any(name == b"transfer-encoding" for name, _ in event.headers)
        return event


class _Transport:
    """The transport, with `part` in place of `close`."""

    def __init__(self, transport: asyncio.Transport, part: Callable[[], None]) -> None:
        self._transport = transport
        self.close = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpConnection(H11Protocol):
    def __init__(
        self, others: HttpConnections, config: Config, server_state: ServerState, **more: Any
    ) -> None:
        super().__init__(config, server_state, **more)
        self.conn = _Requests(h11.SERVER, HEAD_BYTES)
        self._others = others
        self._raw: asyncio.Transport | None = None
        self._phase = Phase.SILENT
        self._ends: asyncio.TimerHandle | None = None  # when its phase's time is over
        self._stalls: asyncio.TimerHandle | None = None  # when its answer was too long untaken
        self._thrown_away = 0

    @property
    def is_stream(self) -> bool:
        """Whether its answer is an event stream, or one that may take its time."""
        if self._phase is not Phase.REQUEST:
            return False
        return self.scope["path"] == EVENTS or LINGERS in self.scope

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        self._others.enter(self)
        self._begin(Phase.SILENT)
        super().connection_made(_Transport(transport, self._part))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.leave(self)
        self._begin(Phase.IDLE)
        self._end_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, unless the connection is parting."""
        if self._phase is Phase.PARTING:
            self._thrown_away += len(data)
            if self._thrown_away > THROWN_AWAY:
                self.cut()
            return
        if self._phase in (Phase.SILENT, Phase.IDLE):
            self._begin(Phase.HEAD)
        super().data_received(data)
        self._notice()

    def on_response_complete(self) -> None:
        if self._phase is Phase.PARTING:
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._part()
            return
        self._begin(Phase.IDLE)
        self._others.served(self)
        super().on_response_complete()
        self._notice()

    def pause_writing(self) -> None:
        """The client doesn't take its answer: bound for how long."""
        self._stalls = self.loop.call_later(LIMITS[Phase.REQUEST], self.cut)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()

    def cut(self) -> None:
        """Close it at once."""
        if self._raw is not None:
            self._raw.abort()

    def _notice(self) -> None:
        """Begin the request's phase once its head is complete."""
        is_under_way = self.cycle is not None and not self.cycle.response_complete
        if is_under_way and self._phase in (Phase.HEAD, Phase.IDLE):
            self._begin(Phase.REQUEST)

    def _begin(self, phase: Phase) -> None:
        self._phase = phase
        if self._ends is not None:
            self._ends.cancel()
        limit = LIMITS.get(phase)
        self._ends = None if limit is None else self.loop.call_later(limit, self._end)

    def _end(self) -> None:
        if not self.is_stream:
            self.cut()

    def _end_stall(self) -> None:
        if self._stalls is not None:
            self._stalls.cancel()
            self._stalls = None

    def _part(self) -> None:
        """Close; a client that still sends may read its answer first."""
        if self._raw is None or self._raw.is_closing() or self._phase is Phase.PARTING:
            return
        still_sends = self.conn.their_state is h11.SEND_BODY
        self._begin(Phase.PARTING)
        if still_sends and self._raw.can_write_eof():
            self._raw.write_eof()
            self.flow.resume_reading()
        else:
            self._raw.close()
