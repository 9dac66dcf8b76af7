"""lease: the thread that renews leases, with a loop and connections of its own.

A handler that blocks the daemon's loop must not end the lease of all that the daemon holds. So a
`Renewer` for each partition lives here, apart from that loop. Python lets both threads take turns:
code that computes releases the interpreter every few milliseconds, and a system call that waits
holds no thread up. (C code that computes without releasing the interpreter stops this thread too;
then the lease ends.)

Each `SessionListener` lives on the daemon's loop and is told there, in the order of events.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import structlog

from groupflow.core.checkup import Check
from groupflow.core.errors import StoreUnavailable
from groupflow.store.client import StoreClient
from groupflow.store.sessions import Session
from groupflow.upkeep.block import BlockWatch
from groupflow.upkeep.elder import come
from groupflow.upkeep.renew import Renewer, SessionListener

ENDS_WITHIN = 5.0  # seconds for the thread to end; it dies with the process if it doesn't

_Answer = TypeVar("_Answer")

log = structlog.get_logger("groupflow.lease")


@dataclass(frozen=True, slots=True)
class PartitionLease:
    """The lease of one partition."""

    client: StoreClient  # the thread's own connection, which it closes at its end
    session: Session
    listener: LoopListener  # what the renewer tells
    renewer: Renewer  # any thread may read its floats


class LeaseThread:
    """A thread that keeps the leases."""

    def __init__(self, watch: BlockWatch, leases: Sequence[PartitionLease]) -> None:
        """Starts nothing before `running`. `watch` sees whether the daemon's loop turns."""
        self.watch = watch
        self._leases = leases
        self.renewers = [each.renewer for each in leases]
        self._is_named = False  # this process, in all sessions alike
        self._loop: asyncio.AbstractEventLoop  # once it runs
        self._leaving = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the thread, for the loop that runs now."""
        for each in self._leases:
            each.listener.loop = asyncio.get_running_loop()
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
                thread.join()  # returns at once: setting `ended` is its last step

    def _live(self, began: Future[asyncio.AbstractEventLoop], ended: Future[None]) -> None:
        try:
            # asyncio's own loop: a renewal now and then needs no faster one.
            asyncio.run(self._stay(began))
        except BaseException as error:
            if not began.done():  # there is no loop: too many files are open, say
                began.set_exception(error)
            raise
        finally:
            ended.set_result(None)

    async def _stay(self, began: Future[asyncio.AbstractEventLoop]) -> None:
        began.set_result(asyncio.get_running_loop())
        try:
            await self._leaving.wait()
        finally:
            for each in self._leases:
                await each.client.close()

    async def open(self) -> None:
        """Open a session in each partition that answers; in the others, once they do.

        Raises:
            NameTaken: another process has the daemon's name, and lives.
            StoreUnavailable: none answers.
            ServerUnreachable: a Redis refused the credentials.
        """
        if not self._is_named:
            daemon = self._leases[0].session.daemon
            process = await self.carry(come(daemon, [each.client for each in self._leases]))
            for lease in self._leases:
                lease.session.process = process
            self._is_named = True
        opening = [self.carry(renewer.open()) for renewer in self.renewers]
        refusals = [
            each
            for each in await asyncio.gather(*opening, return_exceptions=True)
            if each is not None
        ]
        for each in refusals:
            if not isinstance(each, StoreUnavailable):
                raise each
        if len(refusals) == len(self.renewers):
            raise refusals[0]
        for each in refusals:
            log.debug("session.not_opened", error=str(each))

    async def opened(self) -> None:
        """Wait for calls that may be opening sessions, though their callers were cancelled."""
        await asyncio.gather(*(self.carry(renewer.opened()) for renewer in self.renewers))

    def checks(self, *, has_started: bool) -> list[Check]:
        """Whether leases are held, and claims may be made, for `/readyz`."""
        without = [n for n, renewer in enumerate(self.renewers) if not renewer.holds_lease]
        of = len(self.renewers)
        if not has_started or len(without) == of:
            return [Check("lease", "fail", "none: nothing runs"), *self._claims_check()]
        lease = Check("lease", "ok", "held")
        if without:
            missing = ", ".join(map(str, without))
            found = f"none in {len(without)} of {of} partitions: {missing}"
            lease = Check("lease", "warn", found)
        return [lease, *self._claims_check()]

    def _claims_check(self) -> list[Check]:
        """Where Redis gives nothing out for now; see ADR 0045."""
        ends = {n: renewer.held_until for n, renewer in enumerate(self.renewers)}
        held = {n: end - monotonic() for n, end in ends.items() if end is not None}
        if not held:
            return []
        where = f"partition {', '.join(map(str, held))}" if len(ends) > 1 else "Redis"
        left = max(0.0, *held.values())
        found = f"{where} gives nothing out: it may have lost claims; {left:.1f} s at the most"
        return [Check("claims", "warn", found, "They go on once every daemon has renewed.")]

    async def carry(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run `work` in the thread, and raise its error; it is cancelled with the caller."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class LoopListener:
    """Takes what a renewer tells across to the loop of the `SessionListener`."""

    def __init__(self, listener: SessionListener) -> None:
        self._listener = listener
        self.loop: asyncio.AbstractEventLoop  # once the thread runs

    def lease_ended(self) -> None:
        """As in `SessionListener`; it doesn't wait for the loop, which may be blocked."""
        self._call(self._listener.lease_ended)

    async def session_lost(self) -> None:
        """As in `SessionListener`; returns once every claim is dropped.

        Only then may a new session be opened: a claim of the old session that met the new one's
        number would look alive.
        """

        async def drop() -> None:
            self._listener.session_lost()

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(drop(), self.loop))

    def session_opened(self) -> None:
        """As in `SessionListener`."""
        self._call(self._listener.session_opened)

    def session_continued(self) -> None:
        """As in `SessionListener`."""
        self._call(self._listener.session_continued)

    def claimable(self, plain: int, groups: int, cancels: frozenset[str]) -> None:
        """As in `SessionListener`."""
        self._call(partial(self._listener.claimable, plain, groups, cancels))

    def _call(self, tell: Callable[[], None]) -> None:
        self.loop.call_soon_threadsafe(tell)
