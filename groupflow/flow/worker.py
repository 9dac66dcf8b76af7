"""A worker: claims, handles, settles, one task after another."""

from __future__ import annotations

import asyncio
from time import perf_counter

import structlog

from groupflow.core.outcome import Outcome
from groupflow.flow.dispatch import Dispatcher, report_lost
from groupflow.flow.handling import Failed, Handlers
from groupflow.flow.settling import settlement_of
from groupflow.store.claims import Bury, Claim, Release, Settlement

log = structlog.get_logger("groupflow.worker")


class Worker:
    """One claiming coroutine.

    Attributes:
        name: unique within the daemon; its checkpoint lies under it.
    """

    def __init__(self, name: str, dispatcher: Dispatcher, handlers: Handlers) -> None:
        self.name = name
        self._dispatcher = dispatcher
        self._handlers = handlers
        self._attempt: asyncio.Task[Outcome | Failed] | None = None
        self._is_lost = False

    @property
    def is_busy(self) -> bool:
        """Whether a handler is running."""
        return self._attempt is not None

    def hand_back(self) -> None:
        """Cancel the running attempt; its task goes back to the store."""
        if self._attempt is not None:
            self._attempt.cancel()

    def lose(self) -> None:
        """Cancel the running attempt; its claim is somebody else's, so nothing is written."""
        self._is_lost = True
        self.hand_back()

    async def run(self) -> None:
        """Work until the dispatcher has nothing more to give."""
        settlement: Settlement | None = None
        while (claim := await self._dispatcher.next_claim(self.name, settlement)) is not None:
            settlement = await self._handle(claim)

    async def _handle(self, claim: Claim) -> Settlement | None:
        task = claim.task
        bound = log.bind(task=task.id, group=task.group, fence=claim.fence, worker=self.name)
        bound.debug("task.claimed", type=task.type, attempt=task.attempt, crashes=task.crashes)
        began = perf_counter()
        self._is_lost = False
        # A task of its own, so that cancelling the attempt can't be mistaken for ending the worker.
        self._attempt = asyncio.create_task(self._handlers.handle(task))
        try:
            outcome = await self._attempt
        except asyncio.CancelledError:
            if not self._attempt.done():  # it is the worker that is being ended
                self._attempt.cancel()
                raise
            if self._is_lost:
                report_lost(claim)
                return None
            bound.info("task.released", seconds=round(perf_counter() - began, 6))
            return Release(claim)
        finally:
            self._attempt = None
        if self._is_lost:
            report_lost(claim)
            return None
        settlement = settlement_of(claim, outcome)
        seconds = round(perf_counter() - began, 6)
        if isinstance(settlement, Bury):
            bound.error("task.buried", type=task.type, reason=settlement.reason, seconds=seconds)
        else:
            bound.debug("task.settled", outcome=type(settlement).__name__.lower(), seconds=seconds)
        return settlement
