"""Bounds incoming lists: one at a time for each token, a few in all, each at a least rate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from time import monotonic

from starlette.requests import Request

from groupflow.ops.page.problems import Refused
from groupflow.pools.lists import SpooledList

MOST = 8  # lists that come in at once, over all tokens
GRACE = 10.0  # seconds that a list may be behind its least rate
RATE = 64 * 1024  # bytes a second that a list comes at, at least
RETRY_AFTER = 10.0  # seconds
_PIECE = 1024 * 1024  # bytes that are checked at a time


class Uploads:
    """The lists that come in now: each may hold a file, and a megabyte of memory or more."""

    def __init__(self) -> None:
        self._tokens: set[str] = set()

    @contextmanager
    def one(self, token: str) -> Iterator[None]:
        """Let a token's list in, until the block ends.

        Raises:
            Refused: it has another one in flight, or there are too many over all tokens.
        """
        if token in self._tokens:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"A list of the token of {token} is still under way: wait for its answer.",
                RETRY_AFTER,
            )
        if len(self._tokens) >= MOST:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MOST} lists of other tokens come in just now, and no more may. Try again soon.",
                RETRY_AFTER,
            )
        self._tokens.add(token)
        try:
            yield
        finally:
            self._tokens.discard(token)


async def spool(request: Request, spooled: SpooledList) -> None:
    """Take all of a list in, and check it.

    Raises:
        Refused: it came too slowly.
        WrongList: it can't be used.
        ClientDisconnect: it broke off.
        OSError: there is no room for its file.
    """
    stream = request.stream()
    waiting = bytearray()
    came, waited = 0, 0.0  # bytes; seconds that we waited for them, without our own work
    while True:
        began = monotonic()
        try:
            async with asyncio.timeout(GRACE + came / RATE - waited):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise Refused(
                HTTPStatus.REQUEST_TIMEOUT,
                f"Nothing was changed: {came} bytes came in {waited + monotonic() - began:.0f} s, "
                f"and a list has to come at {RATE} bytes a second.",
            ) from None
        if chunk is None:
            break
        waited += monotonic() - began
        came += len(chunk)
        waiting += chunk
        if len(waiting) >= _PIECE:
            await asyncio.to_thread(spooled.feed, bytes(waiting))
            waiting.clear()
    await asyncio.to_thread(spooled.feed, bytes(waiting))
    await asyncio.to_thread(spooled.end)
