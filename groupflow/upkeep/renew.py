"""renew: keeps the daemon's lease, and tells at once when it can't be kept.

The lease runs from the sending of the last answered renewal, by this machine's own monotonic clock.
At its end the daemon cancels the running handlers even if it can't ask Redis, since by then another
daemon may have taken over.

All of it runs in the lease's thread (`upkeep/lease.py`). Other threads read when the lease ends:
plain floats, each written whole, in one place, under the GIL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, TypeAlias

import structlog

from groupflow.core.errors import (
    GroupflowError,
    OtherLayout,
    SessionLost,
    SessionReplaced,
    StoreUnavailable,
)
from groupflow.core.measures import UpkeepMeasures
from groupflow.crashpoints import crash_point
from groupflow.store.sessions import HandedOver, Sessions

log = structlog.get_logger("groupflow.renew")

RENEWALS_PER_LEASE = 4  # at least
SELDOMEST = 2.0  # seconds between renewals, at most: others may wait for one (`lua/epochs.lua`)

UNANSWERED = "no renewal was answered in time: Redis is away, or this process stood still"
BLOCKED = "the event loop was blocked for longer than workers.max_block"


Blamed: TypeAlias = tuple[bool, tuple[int, str] | None]
"""Whether the loop is surely blocked for too long; fence and id of the task that blocks it,
``None`` where none is known."""


class SessionListener(Protocol):
    """Acts under the session: makes and settles its claims."""

    def lease_ended(self) -> None:
        """The lease is over by our own clock; the session may or may not be: stop all handlers."""

    def session_lost(self) -> Awaitable[None] | None:
        """The session is gone, with every claim; done once the listener acts under it no more."""

    def session_opened(self) -> None:
        """There is a new session."""

    def session_continued(self) -> None:
        """The session goes on: under another server, which may have lost the last settlements.

        Or its lease had ended meanwhile, and the store wasn't told how this daemon has changed.
        """

    def claimable(self, plain: int, groups: int, cancels: frozenset[str]) -> None:
        """So many plain tasks and groups can be claimed now, and these are to be cancelled."""


class Renewer:
    """Renews the lease well within it, and opens a new session where the old one is lost."""

    def __init__(
        self,
        sessions: Sessions,
        listener: SessionListener,
        lease: float,
        info: Callable[[], dict[str, Any]],
        *,
        measures: UpkeepMeasures | None = None,
        may_renew: Callable[[], bool] = lambda: True,
        blamed: Callable[[], Blamed] = lambda: (False, None),
    ) -> None:
        """Binds the lease (seconds).

        `info` is what `status` tells of the daemon. `may_renew` is asked before each renewal
        whether the lease may be renewed. Where it may not, `blamed` says whether the block is sure,
        and which task causes it.
        """
        self._measures = measures or UpkeepMeasures()
        self._sessions = sessions
        self._listener = listener
        self._lease = lease
        self._pace = min(lease / RENEWALS_PER_LEASE, SELDOMEST)
        self._info = info
        self._may_renew = may_renew
        self._blamed = blamed
        self._has_blamed = False  # since renewing stopped
        self._opening: asyncio.Future[list[HandedOver]] | None = None
        self._answered = monotonic() - lease
        self._is_over = True
        self.is_open = False  # there is, or was, a session
        # When (monotonic) its Redis gives tasks out again at the latest; None where it does now.
        self.held_until: float | None = None
        self.is_begun = False  # claims may be made under the session
        self._reason = UNANSWERED
        self.steady_since = monotonic()  # when a renewal last failed

    async def open(self) -> None:
        """Open a session; log the tasks that an earlier process of this name had left."""
        await self.opened()
        sent = monotonic()
        # If it were cancelled midway, the daemon wouldn't know whether there is a session to close.
        self._opening = asyncio.ensure_future(self._sessions.register(self._info()))
        for handed in await asyncio.shield(self._opening):
            self._measures.resumed += 1
            log_handed_over("task.resumed", handed)
        crash_point("after_register")
        self.is_open = True
        self._answered_at(sent)
        self.is_begun = False
        self._begin()

    async def opened(self) -> None:
        """Wait for a call that may be opening a session, though its caller was cancelled."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)

    async def run(self) -> None:
        """Renew for ever.

        Raises:
            SessionReplaced: another process took over this daemon's name.
            OtherLayout: the namespace was moved to another number of partitions meanwhile.
        """
        while True:
            await asyncio.sleep(self._pause())
            try:
                await self.run_once()
            except (SessionReplaced, OtherLayout, asyncio.CancelledError):
                raise
            except GroupflowError as error:
                self.steady_since = monotonic()
                self._measures.renewals_failed += 1
                # The log already says that Redis is away, but no other error.
                tell = log.debug if isinstance(error, StoreUnavailable) else log.warning
                tell("lease.not_renewed", error=str(error), left=round(self.left, 3))

    async def run_once(self) -> None:
        """Renew once, or open a new session where the old one turns out to be lost."""
        if self.left <= 0 and not self._is_over:
            self._is_over = True
            log.error("lease.ended", lease=self._lease, reason=self._reason)
            self._listener.lease_ended()
        if not self._may_renew():
            self._reason = BLOCKED
            await self._blame()
            return
        self._reason, self._has_blamed = UNANSWERED, False
        if not self.is_open:  # its server was away when the daemon started
            await self._open_again()
            return
        sent = monotonic()
        crash_point("before_renew")
        try:
            # Never beyond the lease's end: then the handlers must be stopped.
            async with asyncio.timeout(self.left if self.left > 0 else self._pace):
                claimable = await self._sessions.renew()
                crash_point("after_renew")
        except TimeoutError:
            self.steady_since = monotonic()
            self._measures.renewals_failed += 1
            return
        except SessionLost as error:
            self._measures.sessions_lost += 1
            log.warning("session.lost", error=str(error))
            # From here on no claim begins, until there is a new session.
            self._answered, self._is_over = sent - self._lease, True
            if (dropping := self._listener.session_lost()) is not None:
                await dropping
            await self._open_again()
            return
        has_lapsed = self._is_over and self.is_begun
        self._answered_at(sent)
        if self._begin():
            self._listener.session_opened()
        if claimable.is_elsewhere or has_lapsed:
            self._listener.session_continued()
        self._tell_of_recovery(claimable.recovering)
        self._listener.claimable(claimable.plain, claimable.groups, claimable.cancels)

    async def _open_again(self) -> None:
        await self.open()
        if self.is_begun:
            self._listener.session_opened()

    async def _blame(self) -> None:
        """Tell the store once which task makes the lease end, while there is a session."""
        is_sure, culprit = self._blamed()
        if is_sure and self.is_open and not self._has_blamed:
            with suppress(SessionLost, SessionReplaced):  # its tasks were taken over already
                await self._sessions.blame(culprit)
            self._has_blamed = True

    def _begin(self) -> bool:
        """Hold the lease once another daemon knows the session. True where that begins now."""
        if self.is_begun or not self._sessions.is_witnessed:
            return False
        self.is_begun = True
        log.info("lease.begun")
        return True

    def _tell_of_recovery(self, seconds: float | None) -> None:
        """Log once that nothing may be claimed, and once when that is over."""
        if seconds is not None and self.held_until is None:
            log.warning(
                "claims.held_back",
                seconds=round(seconds, 3),
                reason="Redis restarted, or another server leads: it may have lost claims",
                remedy="they go on once every daemon has renewed, or by then",
            )
        elif seconds is None and self.held_until is not None:
            log.info("claims.go_on")
        self.held_until = None if seconds is None else monotonic() + seconds

    def _answered_at(self, sent: float) -> None:
        """The lease runs from the sending on, but only once another daemon knows the session.

        Otherwise, if the server lost its last writes, no daemon would know of the session.
        """
        is_missed = self._sessions.is_witnessed
        self._answered, self._is_over = sent if is_missed else sent - self._lease, not is_missed

    @property
    def holds_lease(self) -> bool:
        """Whether the lease still runs, by this machine's own clock."""
        return self.left > 0

    @property
    def left(self) -> float:
        """Seconds until the lease ends, by this machine's own clock; below 0 once it has."""
        return self._answered + self._lease - monotonic()

    def _pause(self) -> float:
        """Seconds until the next try: sooner once one has failed, never past the lease's end."""
        if self._sessions.has_news and self._reason != BLOCKED:
            return 0.0
        pace, left = self._pace, self.left
        since = self._lease - left
        if since < pace:
            return pace - since
        if left <= 0 and not self._is_over:
            return 0.0  # it has ended, and the listener isn't told yet
        return min(pace / 4, left) if left > 0 else pace / 4


def log_handed_over(event: str, handed: HandedOver) -> None:
    """Log a task that was taken from a daemon which didn't settle it."""
    log.warning(
        event, task=handed.id, group=handed.group, fence=handed.fence, held_by=handed.daemon
    )
