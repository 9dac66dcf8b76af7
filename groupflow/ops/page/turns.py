"""How much of the store's time callers of the page may take: tasks come first.

Redis does one thing at a time. So callers without the token read one after another, and for a share
of the time only: small requests are answered at once, and a flood waits for itself. Callers with
the token get more.

A page gives way to everything else on its machine. Its wait for a core takes none of Redis's time:
if it counted, a look on a busy machine would make the next one wait for minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from time import monotonic

from groupflow.ops.page.problems import Refused

SHARE = 0.05  # of the time, for all callers without the token
SAVED = 0.5  # seconds of reading that quiet saves up, at most
WAITING = 64  # callers without the token that wait for their turn
AT_ONCE = 4  # reads of callers with the token
BODIES = 16 * 1024 * 1024  # bytes of bodies that callers without the token send at a time
_SHORTEST = 0.001  # seconds of a wait: one that rounds to 0 would loop for ever
_SCHEDULED = Path("/proc/thread-self/schedstat")  # ns on a core, ns of waiting for one, times
_BUSY = "Too many look at this page just now. Try again soon, or show the token."


class Turns:
    """Decides when each caller reads."""

    def __init__(self) -> None:
        self._trusted = asyncio.Semaphore(AT_ONCE)
        self._one = asyncio.Lock()
        self._waiting = 0
        self._saved = SAVED
        self._counted = monotonic()
        self._bodies = 0

    @asynccontextmanager
    async def turn(self, *, is_trusted: bool) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for as long as the block.

        Raises:
            Refused: too many wait already.
        """
        if is_trusted:
            async with self._trusted:
                yield
            return
        if self._waiting >= WAITING:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, _BUSY)
        self._waiting += 1
        try:
            await self._one.acquire()
        finally:
            self._waiting -= 1
        try:
            await self._save_up()
            began = monotonic() - _waited_for_core()
            try:
                yield
            finally:
                self._saved -= max(0.0, monotonic() - _waited_for_core() - began)
        finally:
            self._one.release()

    async def _save_up(self) -> None:
        """Wait until there is time to spend."""
        while True:
            now = monotonic()
            self._saved = min(SAVED, self._saved + (now - self._counted) * SHARE)
            self._counted = now
            if self._saved >= 0:
                return
            await asyncio.sleep(max(-self._saved / SHARE, _SHORTEST))

    @asynccontextmanager
    async def body(self, size: int, *, is_trusted: bool) -> AsyncIterator[None]:
        """Room for a body while it is read and used.

        Raises:
            Refused: too much comes already.
        """
        if not is_trusted and self._bodies + size > BODIES:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, _BUSY)
        counted = 0 if is_trusted else size
        self._bodies += counted
        try:
            yield
        finally:
            self._bodies -= counted


def _waited_for_core() -> float:
    """Seconds that this thread was ready to run and did not; 0 where the system doesn't say."""
    try:
        return int(_SCHEDULED.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
