"""lease: the thread in which the lease is renewed, with a loop and a connection of its own.

What a handler does to the daemon's loop must not end the lease of all that the daemon holds. So the
`Renewer` lives here, apart from it. Python lets both take turns: code that computes hands the
interpreter over every few milliseconds, and what waits in the system holds nobody up. (C code that
computes without letting go of the interpreter stops this thread too; then the lease ends.)

Who acts under the session lives on the daemon's loop and is told there, in the order of what
happened.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from groupflow.store.client import StoreClient
from groupflow.upkeep.block import BlockWatch
from groupflow.upkeep.renew import Holder, Renewer

ENDS_WITHIN = 5.0  # seconds for the thread to end; it dies with the process if it doesn't

_Answer = TypeVar("_Answer")


class LeaseThread:
    """A thread that keeps the lease."""

    def __init__(
        self,
        client: StoreClient,
        watch: BlockWatch,
        holder: Holder,
        renewer: Callable[[Told], Renewer],
    ) -> None:
        """Nothing runs before `running`.

        Args:
            client: the thread's own connection, which it closes at its end.
            watch: sees whether the daemon's loop turns.
            holder: told on that loop.
            renewer: makes the renewer, given whom it tells.
        """
        self.watch = watch
        self._client = client
        self._told = Told(holder)
        self.renewer = renewer(self._told)  # its floats may be read from any thread
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the thread live, for the loop that runs now."""
        self._told.loop = asyncio.get_running_loop()
        self.watch.begin()
        began, ended = Future[asyncio.AbstractEventLoop](), Future[None]()
        thread = threading.Thread(
            target=self._live, args=(began, ended), name="groupflow-lease", daemon=True
        )
        thread.start()
        self._loop = loop = await asyncio.wrap_future(began)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(self._leaving.set)
            await asyncio.wait([asyncio.wrap_future(ended)], timeout=ENDS_WITHIN)
            if ended.done():
                thread.join()  # at once: that was its last word

    def _live(self, began: Future[asyncio.AbstractEventLoop], ended: Future[None]) -> None:
        try:
            # asyncio's own loop: a renewal now and then needs no faster one.
            asyncio.run(self._stay(began))
        finally:
            ended.set_result(None)

    async def _stay(self, began: Future[asyncio.AbstractEventLoop]) -> None:
        began.set_result(asyncio.get_running_loop())
        try:
            await self._leaving.wait()
        finally:
            await self._client.close()

    async def open(self) -> None:
        """Open the session.

        Raises:
            StoreUnavailable: no answer.
            ServerUnreachable: Redis refused the credentials.
        """
        await self.carry(self.renewer.open())

    async def carry(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run something in the thread; it is cancelled with the caller, and its error is raised."""
        assert self._loop is not None, "the thread isn't running"  # noqa: S101
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class Told:
    """Takes what the renewer tells across to the loop of whoever acts under the session."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self.loop: asyncio.AbstractEventLoop | None = None

    def lease_ended(self) -> None:
        """As in `Holder`; the loop may be blocked, and that is nothing to wait for."""
        self._call(self._holder.lease_ended)

    async def session_lost(self) -> None:
        """As in `Holder`; returns once every claim is dropped.

        Only then may a new session be opened: a claim of the old one that met the new one's number
        would look alive.
        """

        async def drop() -> None:
            self._holder.session_lost()

        assert self.loop is not None, "the thread isn't running"  # noqa: S101
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(drop(), self.loop))

    def session_opened(self) -> None:
        """As in `Holder`."""
        self._call(self._holder.session_opened)

    def claimable(self, plain: int, groups: int) -> None:
        """As in `Holder`."""
        self._call(partial(self._holder.claimable, plain, groups))

    def _call(self, tell: Callable[[], None]) -> None:
        assert self.loop is not None, "the thread isn't running"  # noqa: S101
        self.loop.call_soon_threadsafe(tell)
