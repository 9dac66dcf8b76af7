"""A worker: claims, handles, settles, one task after another."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

import structlog

from groupflow.core.outcome import Dead, Outcome
from groupflow.core.policy import Policies
from groupflow.core.task import Task
from groupflow.core.tracing import Tracing
from groupflow.crashpoints import crash_point
from groupflow.flow.exchange import Slot
from groupflow.flow.hall import Hall
from groupflow.flow.handling import Failed, Runner, Runners
from groupflow.flow.settling import settlement_of
from groupflow.store.settlements import Bury, Claim, Complete, Release, Retry, Settlement

log = structlog.get_logger("groupflow.worker")

LATE = 0.1  # seconds that a time limit may be found over late before something blocked the loop
STUCK_LOOK = 10.0  # seconds between two reports of an attempt that doesn't end when cancelled


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides how a task is run and settled; a reload brings others.

    Attributes:
        runners: find who runs a type.
        policies: say what holds for a task.
        max_crashes: claims of a task that may end in a crash before it is a dead letter.
    """

    runners: Runners
    policies: Policies
    max_crashes: int


class Worker:
    """One claiming coroutine."""

    def __init__(self, name: str, hall: Hall, rules: Rules, tracing: Tracing | None = None) -> None:
        """Binds a worker to its pool.

        Args:
            name: unique within the pool.
            hall: of the pool.
            rules: by which it works. An attempt that runs ends as it began; its outcome is settled
                by the newest, as are those of all tasks that wait.
            tracing: told of each attempt.
        """
        self.name = name
        self.rules = rules
        self._tracing = tracing
        self._hall = hall
        self._types = hall.measures.types
        self._attempt: asyncio.Task[Outcome | Failed] | None = None
        self._claim: Claim | None = None  # that attempt's
        self._is_lost = False
        self._tells_all: bool = log.is_enabled_for(logging.DEBUG)  # asked once: it is not cheap

    def names_of(self, attempt: asyncio.Task[Any]) -> dict[str, Any]:
        """What to log of an attempt, where it is this worker's. May be asked from any thread."""
        claim = self._claim
        return _names(claim) if claim is not None and self._attempt is attempt else {}

    @property
    def is_busy(self) -> bool:
        """Whether a handler is running."""
        return self._attempt is not None and not self._attempt.done()

    def hand_back(self) -> None:
        """Cancel the running attempt; its task goes back to the store."""
        crash_point("hand_back", self.is_busy)
        if self._attempt is not None:
            self._attempt.cancel()

    def lose(self) -> None:
        """Cancel the running attempt; its claim is somebody else's, so nothing is written."""
        self._is_lost = True
        self.hand_back()

    async def run(self) -> None:
        """Work until the hall has nothing more to give."""
        slot: Slot | None = None
        settlement: Settlement | None = None
        while (slot := await self._hall.next_slot(self.name, slot, settlement)) is not None:
            tracing = self._tracing
            settlement = await (self._traced(slot, tracing) if tracing else self._work(slot))

    async def _traced(self, slot: Slot, tracing: Tracing) -> Settlement | None:
        """The same within a span, which is the handler's current one."""
        with tracing.processing(slot.held.task) as attempt:
            settlement = await self._work(slot)
            if settlement is None:
                attempt.ended("lost", "ClaimLost")
            elif isinstance(settlement, (Retry, Bury)):
                attempt.ended(settlement.outcome, settlement.errors[-1]["error"])
            else:
                attempt.ended(settlement.outcome)
            return settlement

    async def _work(self, slot: Slot) -> Settlement | None:
        """Handle one claim. Returns what to settle, or ``None`` where the claim was lost."""
        claim = slot.held
        task = claim.task
        if self._tells_all:
            log.debug("task.claimed", **_names(claim), attempt=task.attempt, crashes=task.crashes)
        began = perf_counter()
        self._is_lost = False
        self._claim = claim
        runner = self.rules.runners.find(task.type)
        outcome: Outcome | Failed | None
        if runner is None:
            outcome = Dead(f"no handler for type {task.type!r}")
        elif task.crashes >= self.rules.max_crashes:
            outcome = Dead(f"{task.crashes} daemons died, or lost their lease, while they ran it")
        else:
            crash_point("before_handler")
            outcome = await self._handle(runner, slot, task)
            seconds = perf_counter() - began
            self._types.of(task.type).handling.observe(seconds)
            if outcome is not None:
                slot.handled(seconds)
            crash_point("after_handler")
        if self._is_lost:
            return None
        if outcome is None:
            log.info("task.released", **_names(claim), seconds=round(perf_counter() - began, 6))
            return Release(claim)
        policy = self.rules.policies.of(claim.rule, runner.retry if runner else None)
        settlement = settlement_of(claim, outcome, policy)
        if self._tells_all or not isinstance(settlement, Complete):
            _report(settlement, round(perf_counter() - began, 6))
        return settlement

    async def _handle(self, runner: Runner, slot: Slot, task: Task) -> Outcome | Failed | None:
        """Run one attempt within its time. ``None`` where it was cancelled from outside."""
        # A task of its own, so that ending the attempt can't be mistaken for ending the worker.
        attempt = self._attempt = asyncio.create_task(_begin(runner, slot, task))
        try:
            if not await _ends_within(attempt, runner.timeout):
                return await self._overrun(attempt, runner, task)
        except asyncio.CancelledError:
            attempt.cancel()
            raise
        return None if attempt.cancelled() else attempt.result()

    async def _overrun(
        self, attempt: asyncio.Task[Outcome | Failed], runner: Runner, task: Task
    ) -> Outcome | Failed | None:
        """Cancel an attempt that is over its time and wait for its end, however long that takes.

        The claim is kept and its lease renewed meanwhile: to give it up would be to run the task a
        second time beside the first. The other workers go on.
        """
        attempt.cancel()
        waited = 0.0
        while True:
            if await _ends_within(attempt, STUCK_LOOK):
                break
            waited += STUCK_LOOK
            log.error("handler.stuck", task=task.id, type=task.type, ignored_for=waited)
        if attempt.cancelled():
            return Failed("TimeoutError", f"it ran over its {runner.timeout} s")
        return attempt.result()  # it ended by itself after all, and says how


async def _begin(runner: Runner, slot: Slot, task: Task) -> Outcome | Failed:
    """Run the attempt, unless the lease ended between the claim and this very moment.

    Another handler may have blocked the loop meanwhile, and others gone on without us.
    """
    if not slot.is_within_lease:
        raise asyncio.CancelledError
    return await runner.handle(task)


async def _ends_within(attempt: asyncio.Task[Any], seconds: float | None) -> bool:
    """Wait for an attempt to end, however it does; `asyncio.wait` costs three times as much.

    A time that is found over late was over while another handler blocked the loop: it is put off by
    as much. Once, since the attempt may be the one that blocks, again and again.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[bool] = loop.create_future()

    def tell(_: object) -> None:
        if not over.done():
            over.set_result(attempt.done())

    attempt.add_done_callback(tell)
    if seconds is None:
        return await over
    due = monotonic() + seconds
    timer = loop.call_later(seconds, lambda: put_off(monotonic() - due))

    def put_off(late: float) -> None:
        nonlocal timer
        if late > LATE:
            timer = loop.call_later(late, tell, None)
        else:
            tell(None)

    try:
        return await over
    finally:
        timer.cancel()


def _names(claim: Claim) -> dict[str, Any]:
    """What every line about a claim says, but never anything of the body."""
    task = claim.task
    return {
        "task": task.id,
        "type": task.type,
        "group": task.group,
        "fence": claim.fence,
        "slot": claim.slot,
    }


def _report(settlement: Settlement, seconds: float) -> None:
    names = _names(settlement.claim)
    outcome = type(settlement).__name__.lower()
    match settlement:
        case Complete():
            log.debug("task.settled", **names, outcome=outcome, seconds=seconds)
        case Bury(reason=reason):
            log.error("task.buried", **names, reason=reason, seconds=seconds)
        case _:
            log.info("task.settled", **names, outcome=outcome, seconds=seconds)
