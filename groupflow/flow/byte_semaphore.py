"""byte_semaphore: bounds how many bytes of large bodies a daemon holds at a time.

A claim only names a body that is too large for a script; the worker fetches it when there is room.
So memory depends on this bound, not on how many workers there are and how large their tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MOST = 64 * 1024 * 1024  # bytes


class ByteSemaphore:
    """Bytes that may be held at a time; workers get them in turn."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Hold `size` bytes. A body larger than the whole room is held alone."""
        await self._take(size)
        try:
            yield
        finally:
            self._held -= size
            self._give()

    async def _take(self, size: int) -> None:
        granted = asyncio.get_running_loop().create_future()
        entry = (size, granted)
        self._waiting.append(entry)
        self._give()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._held -= size
            elif entry in self._waiting:  # else `_give` has met it
                self._waiting.remove(entry)
            self._give()
            raise

    def _give(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if self._held and self._held + size > self._most:
                return
            self._waiting.popleft()
            if not granted.done():
                self._held += size
                granted.set_result(None)
