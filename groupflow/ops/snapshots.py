"""An answer read once for many callers: any number of open pages cost the store the same."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, TypeVar

_Answer = TypeVar("_Answer")


class Snapshot(Generic[_Answer]):
    """An answer of the store that is read again when it is too old."""

    def __init__(self, read: Callable[[], Awaitable[_Answer]], max_age: float) -> None:
        """Reads nothing yet. An answer is good enough for `max_age` seconds."""
        self._read = read
        self._max_age = max_age
        self._read_at = -max_age
        self._lock = asyncio.Lock()
        self._answer: _Answer
        self._failed_at = -math.inf
        self._error: Exception

    async def get(self) -> _Answer:
        """The answer, of now or of a moment ago.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        asked = monotonic()
        async with self._lock:  # callers meanwhile wait for the same answer
            if self._failed_at > asked:  # or for the same error: each would wait as long again
                raise self._error.with_traceback(None)
            if monotonic() - self._read_at >= self._max_age:
                try:
                    self._answer = await self._read()
                except Exception as error:
                    self._error, self._failed_at = error, monotonic()
                    raise
                self._read_at = monotonic()
            return self._answer
