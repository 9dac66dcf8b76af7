"""One connection: uvicorn's, watched by the door, and without reading costly or late bodies.

- It doesn't read a body in chunks: parsing a chunk costs the same for a byte as for a kilobyte, so
  such bodies cost the most. The guard answers 411.
- It doesn't read a body that still comes when the answer is complete: it sends the answer, drops
  unparsed bytes for a moment, so that a client that still sends can read its answer, and closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from groupflow.ops.page.door import Door, Phase

HEAD_BYTES = 16 * 1024  # of a request's head, which may have a group key in it
THROWN_AWAY = 256 * 1024  # bytes of an unread body, beyond which the connection is cut
EVENTS = "/api/events"
LINGERS = "groupflow.lingers"
"""The key that a request's scope has where its caller may take its time."""


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


class Connection(H11Protocol):
    def __init__(self, door: Door, config: Config, server_state: ServerState, **more: Any) -> None:
        super().__init__(config, server_state, **more)
        self.conn = _Requests(h11.SERVER, HEAD_BYTES)
        self.phase = Phase.SILENT
        self.since = monotonic()
        self.stalled: float | None = None
        self._door = door
        self._raw: asyncio.Transport | None = None
        self._thrown_away = 0

    @property
    def is_stream(self) -> bool:
        if self.phase is not Phase.REQUEST:
            return False
        return self.scope["path"] == EVENTS or LINGERS in self.scope

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        self._door.enter(self)
        super().connection_made(_Transport(transport, self._part))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, unless the connection is parting."""
        if self.phase is Phase.PARTING:
            self._thrown_away += len(data)
            if self._thrown_away > THROWN_AWAY:
                self.cut()
            return
        if self.phase in (Phase.SILENT, Phase.IDLE):
            self._turn(Phase.HEAD)
        super().data_received(data)
        self._notice()

    def on_response_complete(self) -> None:
        if self.phase is Phase.PARTING:
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._part()
            return
        self._turn(Phase.IDLE)
        self._door.served(self)
        super().on_response_complete()
        self._notice()

    def pause_writing(self) -> None:
        """Note since when the client doesn't take its answer."""
        self.stalled = monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.stalled = None
        super().resume_writing()

    def cut(self) -> None:
        if self._raw is not None:
            self._raw.abort()

    def _notice(self) -> None:
        """Begin the request's phase once its head is complete; its time goes on from the head's."""
        is_under_way = self.cycle is not None and not self.cycle.response_complete
        if is_under_way and self.phase in (Phase.HEAD, Phase.IDLE):
            if self.phase is Phase.IDLE:
                self.since = monotonic()
            self.phase = Phase.REQUEST

    def _turn(self, phase: Phase) -> None:
        self.phase = phase
        self.since = monotonic()

    def _part(self) -> None:
        """Close; a client that still sends may read its answer first."""
        if self._raw is None or self._raw.is_closing() or self.phase is Phase.PARTING:
            return
        still_sends = self.conn.their_state is h11.SEND_BODY
        self._turn(Phase.PARTING)
        if still_sends and self._raw.can_write_eof():
            self._raw.write_eof()
            self.flow.resume_reading()
        else:
            self._raw.close()


def connections_of(door: Door) -> type[asyncio.Protocol]:
    """The class of connections that come through a door, as uvicorn makes them."""

    class _Connection(Connection):
        def __init__(self, config: Config, server_state: ServerState, **more: Any) -> None:
            super().__init__(door, config, server_state, **more)

    return _Connection
