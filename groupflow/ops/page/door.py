"""Bounds the open connections, and how long each may stay unused.

A connection costs a file and some memory. So there is a limit; at the limit, the door closes the
connection that has gone longest without an answered request, so that silent ones keep no caller
out. Each has a time limit for the first byte, the head, and the whole request.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from enum import Enum
from time import monotonic
from typing import Protocol

MOST = 512  # connections
MOST_PULLING = 8192  # where there are pools: each worker that waits has one
_FEWEST = 16
_OTHER_FILES = 128  # for Redis, the log, and connections accepted but not yet turned away
FIRST_BYTE = 5.0  # seconds: a client that connects has something to say
HEAD = 10.0  # seconds for a request's head, from its first byte on
REQUEST = 30.0  # seconds for all of a request and its answer, event streams apart
PARTING = 10.0  # seconds for the client to take the last bytes of an answer
_LOOK = 0.5  # seconds between two looks at all of them


class Phase(Enum):
    """The phases of a connection, from its first silence to after an answer."""

    SILENT = "silent"
    HEAD = "head"
    REQUEST = "request"
    PARTING = "parting"
    IDLE = "idle"


_LIMITS = {
    Phase.SILENT: FIRST_BYTE,
    Phase.HEAD: HEAD,
    Phase.REQUEST: REQUEST,
    Phase.PARTING: PARTING,
    Phase.IDLE: float("inf"),  # uvicorn closes them after 5 s
}


class Guest(Protocol):
    """A connection as the door sees it."""

    phase: Phase  # what it is at
    since: float  # since when, by the monotonic clock
    stalled: float | None
    """Since when the client hasn't taken what was written; ``None`` where it takes it."""

    @property
    def is_stream(self) -> bool:
        """Whether its answer is an event stream, which has no end."""

    def cut(self) -> None: ...


class Door:
    """The open connections, the longest without an answered request first."""

    def __init__(self, most: int | None = None) -> None:
        """Starts empty; the default limit is what the process's files allow, up to `MOST`."""
        self._most = most or allowed(MOST)
        self._guests: dict[Guest, None] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def enter(self, guest: Guest) -> None:
        """Add a connection; at the limit, cut the oldest, streams last."""
        if len(self._guests) >= self._most:
            streams = (each for each in self._guests if each.is_stream)
            others = (each for each in self._guests if not each.is_stream)
            oldest = next(others, None) or next(streams)
            self.leave(oldest)
            oldest.cut()
        self._guests[guest] = None

    def served(self, guest: Guest) -> None:
        """Move a connection that had an answer to the end."""
        if guest in self._guests:
            del self._guests[guest]
            self._guests[guest] = None

    def leave(self, guest: Guest) -> None:
        self._guests.pop(guest, None)

    def look(self, now: float) -> None:
        """Cut those whose time is over, by the monotonic clock."""
        for guest in [each for each in self._guests if _is_over(each, now)]:
            self.leave(guest)
            guest.cut()

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look again and again while the block lasts."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(_LOOK)
                self.look(monotonic())

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()


def _is_over(guest: Guest, now: float) -> bool:
    if guest.stalled is not None and now - guest.stalled > REQUEST:
        return True
    return not guest.is_stream and now - guest.since > _LIMITS[guest.phase]


def allowed(most: int) -> int:
    """How many connections, up to `most`, leave enough of the process's files for all else.

    Raises the process's limit of files, as far as it may, where `most` is over `MOST`.
    """
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most
    wanted = most + _OTHER_FILES
    if most > MOST and files < wanted:
        files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(_FEWEST, min(most, files - _OTHER_FILES))
