"""dispatch: one round trip settles everything finished and claims for everybody idle.

Each worker hands in what it finished and waits for its next claim; whoever comes while exchanges
with the store are under way gathers for the next one. So the number of round trips depends on how
long one takes, not on how many workers there are. Several exchanges may be under way, each for half
of the workers at most: while the store works on one, the tasks of another are handled, and whoever
finishes early need not wait for those who finish late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from time import monotonic

import structlog

from groupflow.core.crashpoints import crash_point
from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.core.measures import PoolMeasures
from groupflow.flow.backoff import Backoff
from groupflow.flow.counting import count_exchange
from groupflow.store.claims import Claims
from groupflow.store.settlements import Claim, Release, Settlement

AT_ONCE = 500  # workers an exchange: bounds what one script does
UNDER_WAY = 4  # exchanges at a time
PARTS = 2  # of the pool: an exchange carries one of them at most

log = structlog.get_logger("groupflow.dispatch")


@dataclass(slots=True, eq=False)
class _Turn:
    """A worker that waits for its next claim.

    Attributes:
        worker: its name.
        finished: what it has to settle first. The two always travel together: a worker whose last
            claim isn't settled yet would be given that one again.
        answer: the claim and the session's epoch; ``None`` where no more is claimed.
        is_unsure: whether a claim was made for it and its reply was lost: it may hold one.
    """

    worker: str
    finished: Settlement | None
    answer: asyncio.Future[tuple[Claim | None, int]]
    is_unsure: bool = False


class Dispatcher:
    """Serves the workers of one pool."""

    def __init__(
        self,
        claims: Claims,
        holds_lease: Callable[[], bool] = lambda: True,
        measures: PoolMeasures | None = None,
    ) -> None:
        """Binds the pool's claims.

        Args:
            claims: of the pool.
            holds_lease: whether the lease still runs by our own clock. A claim that was on its way
                while this process was frozen is not begun: others may have gone on without it.
            measures: of the pool.
        """
        self.measures = measures or PoolMeasures()
        self._claims = claims
        self.holds_lease = holds_lease
        self._turns: dict[str, _Turn] = {}
        self._orphans: list[Settlement] = []  # of claims that no worker is there for
        self._workers: set[str] = set()
        self._stir = asyncio.Event()
        self._next = asyncio.Lock()
        self._calls = 0  # reasons to claim for all who are idle, ever
        self._is_empty = False  # the last claim got less than it asked for, and nobody called since
        self._may_claim = True
        self._began: list[float] = []  # when the exchanges under way did
        self._session_open = asyncio.Event()
        self._session_open.set()
        self._retiring: set[str] = set()
        self._epoch = 0  # counts the sessions: a claim of an earlier one is not ours any more

    async def next_claim(self, worker: str, finished: Settlement | None) -> Claim | None:
        """Hand in a finished claim and wait for the next one.

        Returns:
            The claim, or ``None`` when this pool claims no more, at all or for this worker, and
            `finished` is settled.
        """
        self._workers.add(worker)
        loop = asyncio.get_running_loop()
        while True:
            turn = self._turns[worker] = _Turn(worker, finished, loop.create_future())
            if finished is None:
                self.wake()
            self._stir.set()
            claim, epoch = await turn.answer
            if claim is None or epoch == self._epoch:
                return claim
            self.report_lost(claim)  # the session went while the claim was on its way to the worker
            finished = None

    def wake(self) -> None:
        """Something may be claimable now."""
        self._calls += 1
        self._is_empty = False
        self._stir.set()

    def stop_claiming(self) -> None:
        """Claim no more; what is finished is still settled. Idle workers are told to end."""
        self._may_claim = False
        self._stir.set()
        crash_point("during_drain")

    @property
    def may_claim(self) -> bool:
        """Whether `stop_claiming` has not been called."""
        return self._may_claim

    def retire(self, workers: Set[str]) -> None:
        """Claim no more for these workers, and for all others again.

        One that runs a task ends it first; then, or at once where it is idle, it is told to end.
        """
        self._retiring = set(workers)
        self._stir.set()

    def close_session(self) -> None:
        """The session is lost: nothing can be settled or claimed until there is a new one."""
        self._session_open.clear()
        self._epoch += 1

    def open_session(self) -> None:
        """There is a new session. What was finished under the old one is not ours to settle."""
        self._report_all_lost(self._orphans)
        self._orphans = []
        for turn in self._turns.values():
            self._lose(turn)
        self._session_open.set()
        self.wake()

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits to be settled, here or on its way."""
        return not (self._began or self._orphans or self._has_finished())

    def seconds_in_exchange(self) -> float:
        """How long the oldest exchange under way has taken; 0 where none is. A supervisor asks."""
        return monotonic() - min(self._began) if self._began else 0.0

    async def run(self) -> None:
        """Exchange with the store for ever.

        Raises:
            SessionReplaced: the daemon's name was taken over.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(UNDER_WAY):
                group.create_task(self._exchange_for_ever())

    async def _exchange_for_ever(self) -> None:
        backoff = Backoff()
        while True:
            async with self._next:  # one exchange hears of the next reason, not each of them
                await self._stir.wait()
                await self._session_open.wait()
                self._stir.clear()
                # One turn of the loop lets everybody who became ready together travel together.
                await asyncio.sleep(0)
            try:
                await self.run_once()
                backoff.reset()
            except StoreUnavailable as error:
                log.warning("store.unavailable", error=str(error))
                await backoff.wait()
                self._stir.set()
            except SessionLost:
                # Renewal notices it too, drops the claims and opens a new session.
                self._stir.set()
                await asyncio.sleep(backoff.shortest)

    async def run_once(self) -> None:
        """One exchange; after any error the same settlements and workers go into another."""
        epoch, calls, was_empty = self._epoch, self._calls, self._is_empty
        turns, orphans = self._take()
        finished = orphans + [turn.finished for turn in turns if turn.finished]
        idle: list[str] = []
        if self._may_claim and self.holds_lease():
            idle = [turn.worker for turn in turns if self._claims_more(turn)]
        began = monotonic()
        self._began.append(began)
        try:
            crash_point("before_settle", finished)
            crash_point("before_claim", idle)
            refused, claims = await self._claims.exchange(finished, idle)
            crash_point("after_settle", finished)
            crash_point("after_claim", claims)
        except BaseException:
            for turn in turns:
                turn.is_unsure = turn.is_unsure or turn.worker in idle
            self._put_back(turns, orphans, epoch)
            self.wake()
            raise
        finally:
            self._began.remove(began)
        count_exchange(self.measures, finished, refused, claims)
        self._report_all_lost(refused)
        self._deliver(turns, claims, epoch)
        if idle and not was_empty:
            self._note_what_came(len(claims) == len(idle), calls)
        if self._orphans or self._has_finished():
            self._stir.set()
        if not self._may_claim and self.is_settled:
            self._dismiss()
        elif self._retiring:
            self._dismiss_retiring()

    def _note_what_came(self, all_claimed: bool, calls: int) -> None:
        """Learn from an exchange whether more can be claimed; `calls` were made before it."""
        if all_claimed and self._turns:
            self.wake()  # there may be more than one exchange carries
        elif not all_claimed and calls == self._calls:
            self._is_empty = True

    def _take(self) -> tuple[list[_Turn], list[Settlement]]:
        """Workers for one exchange, and what nobody waits for.

        Those who have something to settle come first; where the store was empty, they alone, since
        what they free they can claim themselves, and of all else there is a call.
        """
        share = min(AT_ONCE, -(-len(self._workers) // PARTS))
        chosen = [turn for turn in self._turns.values() if turn.finished][:share]
        if not self._is_empty:
            idle = (turn for turn in self._turns.values() if not turn.finished)
            chosen += islice(idle, share - len(chosen))
        for turn in chosen:
            del self._turns[turn.worker]
        orphans, self._orphans = self._orphans[:AT_ONCE], self._orphans[AT_ONCE:]
        if self._has_finished():
            self._stir.set()  # the rest goes with another exchange
        return chosen, orphans

    def _put_back(self, turns: list[_Turn], orphans: list[Settlement], epoch: int) -> None:
        """After an error: all of it goes into another exchange, unless its session is over."""
        if epoch == self._epoch:
            self._orphans = orphans + self._orphans
        else:
            self._report_all_lost(orphans)
            for turn in turns:
                self._lose(turn)
        self._wait_on(turns)

    def _wait_on(self, turns: list[_Turn]) -> None:
        """Let workers wait for another exchange; one that is gone but for its settlement too."""
        for turn in turns:
            if turn.finished or not turn.answer.done():
                self._turns.setdefault(turn.worker, turn)

    def _deliver(self, turns: list[_Turn], claims: list[Claim], epoch: int) -> None:
        """Give the claims to their workers; `epoch` is the session that they were made under."""
        for turn in turns:
            turn.finished, turn.is_unsure = None, False
        waiting = {turn.worker: turn for turn in turns}
        is_wanted = self._may_claim and self.holds_lease()
        for claim in claims:
            answer = waiting[claim.worker].answer
            if epoch == self._epoch and (answer.done() or not is_wanted):
                # Its worker is gone, or a stop or the lease's end came while it was on its way.
                self._orphans.append(Release(claim))
            elif not answer.done():
                answer.set_result((claim, epoch))
        self._wait_on(turns)

    def _has_finished(self) -> bool:
        return any(turn.finished for turn in self._turns.values())

    def _lose(self, turn: _Turn) -> None:
        if turn.finished is not None:
            self.report_lost(turn.finished.claim)
        turn.finished, turn.is_unsure = None, False

    def _report_all_lost(self, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            self.report_lost(settlement.claim)

    def report_lost(self, claim: Claim) -> None:
        """A claim was lost: its task belongs to somebody else, and nothing was written."""
        self.measures.lost += 1
        log.warning(
            "claim.lost",
            task=claim.task.id,
            group=claim.task.group,
            fence=claim.fence,
            worker=claim.worker,
        )

    def _claims_more(self, turn: _Turn) -> bool:
        return not turn.answer.done() and (turn.is_unsure or turn.worker not in self._retiring)

    def _dismiss_retiring(self) -> None:
        for worker in self._retiring & self._turns.keys():
            turn = self._turns[worker]
            if turn.finished is None and not turn.is_unsure:
                del self._turns[worker]
                self._workers.discard(worker)
                if not turn.answer.done():
                    turn.answer.set_result((None, self._epoch))

    def _dismiss(self) -> None:
        crash_point("before_leave")
        for turn in self._turns.values():
            if not turn.answer.done():
                turn.answer.set_result((None, self._epoch))
        self._turns.clear()
