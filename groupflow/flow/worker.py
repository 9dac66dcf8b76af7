"""A worker: claims, handles, settles, one task after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence, Set
from contextvars import copy_context
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import ServerUnreachable, StoreUnavailable
from groupflow.core.outcome import Advance, Dead, Done, Outcome
from groupflow.core.policy import Policies
from groupflow.core.task import Task
from groupflow.core.tracing import Tracing
from groupflow.crashpoints import crash_point
from groupflow.flow.batches import Together, together
from groupflow.flow.byte_semaphore import ByteSemaphore
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.handling import AttemptTimeout, Failed, Runner, Runners, failed, traceback_of
from groupflow.flow.settling import Ran, deferred, settlement_of
from groupflow.flow.slots import ClaimSource, Slot
from groupflow.store import settlements
from groupflow.store.given import Claim
from groupflow.store.settlements import Bury, Complete, Defer, Release, Retry, Settlement

log = structlog.get_logger("groupflow.worker")


@dataclass(frozen=True, slots=True)
class Rules:
    """How a task is run and settled; a reload brings others."""

    runners: Runners  # find the runner of a type
    policies: Policies  # find the policy of a task
    max_crashes: int  # daemons that may die with a task before it is a dead letter
    daemon: str = ""  # the daemon's name, kept with failed attempts
    max_lost_leases: int = 20  # leases that may be lost with it, by daemons not known to have died
    # seconds for which a task waits while no living daemon knows its type; 0: it is dead at once
    unknown_for: float = 0.0
    tells: bool = False  # whether all are told of tasks that are done


class LocalWorker:
    """Has one attempt at a time."""

    def __init__(
        self,
        name: str,
        dispatcher: Dispatcher,
        rules: Rules,
        tracing: Tracing | None = None,
        room: ByteSemaphore | None = None,
    ) -> None:
        self.name = name  # unique within the pool
        self._room = room or ByteSemaphore()  # for large bodies, shared by the daemon's workers
        self.adopt(rules)
        self._dispatcher = dispatcher
        self._tracing = tracing
        self._types = dispatcher.measures.types
        self._context = copy_context()  # copied for each attempt: no handler sees another's
        self._gone: asyncio.Future[None]  # done once it has no more to do
        self._attempt: asyncio.Task[None] | None = None
        self._slot: Slot | None = None  # that attempt's, until its end
        self._tasks: Sequence[Task] = ()  # those that its handler has, once it has them
        self._has_begun = False
        self._is_cut = False
        self._is_lost = False

    def adopt(self, rules: Rules) -> None:
        """Work by these from here on, and tell as much as the log's level asks for by now.

        A running attempt ends by the rules it began with; the newest rules settle its outcome,
        and run and settle all tasks that wait.
        """
        self.rules = rules
        self._tells_all: bool = log.is_enabled_for(logging.DEBUG)  # asked once: it is not cheap

    def names_of(self, attempt: asyncio.Task[Any]) -> dict[str, Any]:
        """What to log of an attempt, where it is this worker's. From any thread."""
        slot = self._slot
        return _names(slot.held) if slot is not None and self._attempt is attempt else {}

    @property
    def is_busy(self) -> bool:
        """Whether a handler is running."""
        return self._slot is not None

    @property
    def source(self) -> ClaimSource | None:
        """The source of the running attempt's claim; ``None`` where none runs."""
        return None if self._slot is None else self._slot.source

    def hand_back(self) -> None:
        """Cancel the running attempt; its task goes back to the store."""
        crash_point("hand_back", self.is_busy)
        self._is_cut = True
        # Cancelled before its first step, it would not hand its slot in.
        if self._attempt is not None and self._slot is not None and self._has_begun:
            self._attempt.cancel()

    def lose(self) -> None:
        """Cancel the running attempt; its claim is lost, so nothing is written."""
        self._is_lost = True
        self.hand_back()

    def cancel(self, ids: Set[str]) -> None:
        """Tasks are to be cancelled: tell their attempt, and end it if it is of no others.

        Each renewal says so again. An attempt is cancelled once: what it does to end takes its
        time.
        """
        asked = [task for task in self._tasks if task.id in ids and not task.cancelled]
        for task in asked:
            vars(task)["cancelled"] = True  # its handler has this very one
        if asked and all(task.cancelled for task in self._tasks) and self._attempt is not None:
            self._attempt.cancel()

    async def run(self) -> None:
        """Work until the dispatcher gives no more claims.

        Cancelled at the daemon's end, it waits for no handler that can't be stopped.
        """
        self._gone = asyncio.get_running_loop().create_future()
        self._dispatcher.join(self)
        try:
            await self._gone
        except asyncio.CancelledError:
            self._dispatcher.leave(self)
            if self._attempt is not None:
                self._attempt.cancel()
            raise

    def go(self) -> None:
        """As in `Worker`."""
        if not self._gone.done():
            self._gone.set_result(None)

    def begin(self, slot: Slot) -> None:
        """Run an attempt in an asyncio task of its own: a handler can affect no other attempt."""
        self._slot, self._has_begun, self._is_cut, self._is_lost = slot, False, False, False
        self._tasks = ()
        slot.lose = self.lose
        work = self._attend(slot)
        self._attempt = self._gone.get_loop().create_task(work, context=self._context.copy())

    async def _attend(self, slot: Slot) -> None:
        """Run a claim's attempt, and hand the claim in."""
        self._has_begun = True
        try:
            apart = slot.held.apart
            settlement = await (self._attempt_large(slot) if apart else self._attempt_one(slot))
            self._slot, self._attempt, self._tasks = None, None, ()
            # Cut off at the daemon's end, `run` is over, and the task is handed over.
            if not self._gone.done():
                self._dispatcher.hand_in(self, slot, settlement)
        except BaseException as error:  # noqa: BLE001  not foreseen: `run` raises it
            self._slot, self._attempt, self._tasks = None, None, ()
            if not self._gone.done():
                self._gone.set_exception(error)

    async def _attempt_one(self, slot: Slot) -> Settlement | None:
        return await (self._traced(slot, self._tracing) if self._tracing else self._work(slot))

    async def _attempt_large(self, slot: Slot) -> Settlement | None:
        """Run the attempt once there is room for the claim's body, and it is fetched."""
        claim = slot.held
        try:
            async with self._room.taken(claim.apart):
                try:
                    if await self._fetch(claim):
                        return await self._attempt_one(slot)
                finally:
                    claim.let_go()
        except asyncio.CancelledError:
            pass  # while it waited: nothing has begun
        return None if self._is_lost else Release(claim)

    async def _fetch(self, claim: Claim) -> bool:
        """Fetch a body, however long Redis is away or refuses us: the lease's end cancels it."""
        backoff = Backoff()
        while not self._is_cut:
            try:
                return await claim.fetch()
            except (StoreUnavailable, ServerUnreachable) as error:
                log.debug("task.not_fetched", **_names(claim), error=str(error))
                await asyncio.sleep(backoff.next())
        return False

    async def _traced(self, slot: Slot, tracing: Tracing) -> Settlement | None:
        """Handle one claim within a span, which is the handler's current one."""
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
        """Handle one claim. Returns its settlement, or ``None`` where the claim was lost."""
        claim = slot.held
        task = claim.task
        if self._tells_all:
            log.debug("task.claimed", **_names(claim), crashes=task.crashes)
        began = perf_counter()
        runner = self.rules.runners.find(task.type)
        outcome: Outcome | Failed | list[Outcome | Failed] | None
        if runner is None:
            outcome = Dead(f"no handler for type {task.type!r}")
        elif (reason := self._reason_to_bury(task)) is not None:
            outcome = Dead(reason)
        else:
            crash_point("before_handler")
            batch = (
                ()
                if slot.run is None
                else together(claim, slot.run, runner, self.rules.policies.of(claim.rule, None))
            )
            outcome = await self._handle(runner, slot, batch or [task])
            seconds = perf_counter() - began
            self._types.of(task.type).handling.observe(seconds)
            if slot.run is not None:
                slot.run.seconds += seconds
            elif outcome is not None:
                slot.source.prefetch.handled(seconds)
            crash_point("after_handler")
        if self._is_lost:
            return None
        if outcome is None:
            tell = self._teller(task.id)
            tell("task.released", **_names(claim), seconds=round(perf_counter() - began, 6))
            return Release(claim)
        if isinstance(outcome, list):
            settlement = self._pass_on(slot, outcome, runner, began)
        else:
            settlement = self._settle(claim, outcome, runner, began)
        if self._tells_all or not isinstance(settlement, Complete):
            tell = self._teller(settlement.claim.task.id)
            _report(settlement, round(perf_counter() - began, 6), tell)
        return settlement

    def _settle(
        self, claim: Claim, outcome: Outcome | Failed, runner: Runner | None, began: float
    ) -> Settlement:
        try:
            return self._settled(claim, outcome, runner, began)
        except Exception as error:  # noqa: BLE001  the application's own `__eq__`, or `__repr__`
            return self._settled(claim, failed(error, is_final=True), runner, began)

    def _settled(
        self, claim: Claim, outcome: Outcome | Failed, runner: Runner | None, began: float
    ) -> Settlement:
        seconds, rules = perf_counter() - began, self.rules
        if isinstance(outcome, Done) and not (rules.tells or claim.origin or outcome.says_more):
            return Complete(claim, seconds)  # nearly always
        is_final = isinstance(outcome, (Done, Advance, Dead))
        if not is_final and self._is_cancelled(claim.task.id):
            return Release(claim)  # the store cancels it, even if no attempt is left
        policy = rules.policies.of(claim.rule, runner.retry if runner else None)
        ran = Ran(time() - seconds, seconds, rules.daemon, rules.tells)
        if runner is None and (unknown_for := self.rules.unknown_for):
            return deferred(claim, unknown_for, policy, ran)
        return settlement_of(claim, outcome, policy, ran)

    def _is_cancelled(self, id_: str) -> bool:
        """Whether a task of the attempt is to be cancelled; a batch's claims read theirs again."""
        return any(task.cancelled for task in self._tasks if task.id == id_)

    def _teller(self, id_: str) -> Callable[..., Any]:
        """What logs that a task waits again; the store ends one that is to be cancelled."""
        return log.debug if self._is_cancelled(id_) else log.info  # type: ignore[no-any-return]

    def _reason_to_bury(self, task: Task) -> str | None:
        """Why a task with which too many daemons died or lost leases isn't run again."""
        deaths = task.crashes - task.lost_leases
        if deaths >= self.rules.max_crashes:
            return f"{deaths} daemons died while they ran it"
        if task.lost_leases >= self.rules.max_lost_leases:
            return f"{task.lost_leases} daemons stopped, or lost their leases, while they ran it"
        return None

    def _pass_on(
        self,
        slot: Slot,
        outcomes: Sequence[Outcome | Failed],
        runner: Runner | None,
        began: float,
    ) -> Settlement:
        """Pass over a batch's done tasks. Returns how the first one not done, or the last, ends."""
        for outcome in outcomes[:-1]:
            settlement = self._settle(slot.held, outcome, runner, began)
            if not isinstance(settlement, Complete):
                return settlement
            if self._tells_all:
                log.debug("task.settled", **_names(slot.held), outcome="complete")
            slot.go_on(settlement)
        return self._settle(slot.held, outcomes[-1], runner, began)

    async def _handle(
        self, runner: Runner, slot: Slot, tasks: Sequence[Task]
    ) -> Outcome | Failed | list[Outcome | Failed] | None:
        """Run one attempt within its time. ``None`` where it was cut off, or must not begin."""
        # The lease may have ended since the claim, where another handler blocked the loop: another
        # daemon may have taken the task over.
        self._tasks = slot.tasks = tasks
        if self._is_cut or not slot.source.holds_lease() or _are_cancelled(tasks, slot.source):
            return None
        seconds = runner.timeout
        limit = None if seconds is None else AttemptTimeout(tasks[0], seconds)
        try:
            if len(tasks) > 1 and isinstance(runner, Together):
                return await runner.handle_all(tasks)
            return await runner.handle(tasks[0])
        except asyncio.CancelledError as error:
            if limit is not None and limit.is_over:
                what = f"it ran over its {seconds} s"
                return Failed("TimeoutError", what, traceback=traceback_of(error))
            return None
        except Exception as error:  # noqa: BLE001  its runner didn't foresee it: no reason to end all
            return failed(error)
        finally:
            if limit is not None:
                limit.lift()


def _are_cancelled(tasks: Sequence[Task], source: ClaimSource) -> bool:
    """Whether some of these are to be cancelled, and their claim goes back instead.

    That is heard once: if the store knows nothing of it by then, the next claim begins.
    """
    if not source.cancels:
        return False
    asked = [task for task in tasks if source.cancels.pop(task.id, None) is not None]
    for task in asked:
        vars(task)["cancelled"] = True
    return len(asked) > 0


def _names(claim: Claim) -> dict[str, Any]:
    """What every log line says of a claim; never anything of the body."""
    task = claim.task
    return {
        "task": task.id,
        "type": task.type,
        "group": task.group,
        "attempt": task.attempt,
        "fence": claim.fence,
        "slot": claim.slot,
    }


def _report(settlement: Settlement, seconds: float, tell: Callable[..., Any]) -> None:
    names = _names(settlement.claim)
    outcome = type(settlement).__name__.lower()
    match settlement:
        case settlements.Advance(otherwise=None):  # a scan's shard has had its turn, as ever
            log.debug("task.settled", **names, outcome="turn", seconds=seconds)
        case Complete() | Defer():  # the store says what becomes of one that is deferred
            log.debug("task.settled", **names, outcome=outcome, seconds=seconds)
        case Retry(after=after, errors=[*_, error]):
            log.warning(
                "task.settled",
                **names,
                outcome=outcome,
                seconds=seconds,
                after=round(after, 3),
                **_failure(error),
            )
        case Bury(reason=reason, errors=[*_, error]):
            log.error("task.buried", **names, reason=reason, seconds=seconds, **_failure(error))
        case _:
            tell("task.settled", **names, outcome=outcome, seconds=seconds)


def _failure(error: dict[str, Any]) -> dict[str, Any]:
    """What a log line says of a failed attempt: the error, and where."""
    where = {"exception": error["traceback"]} if "traceback" in error else {}
    return {"error": error["error"], "message": error["message"], **where}
