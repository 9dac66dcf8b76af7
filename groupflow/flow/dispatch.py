"""dispatch: one round trip settles everything finished and claims for everybody idle.

Each worker hands in what it finished and takes its next claim; whatever comes while exchanges with
the store are under way gathers for the next one. So the number of round trips depends on how long
one takes, not on how many workers there are. Where handlers are quick, claims are made ahead: as
many as workers begin while an exchange is under way, so that none has to wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from time import monotonic

import structlog

from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.core.measures import PoolMeasures
from groupflow.crashpoints import crash_point
from groupflow.flow.ahead import Ahead
from groupflow.flow.backoff import Backoff
from groupflow.flow.counting import count_exchange
from groupflow.flow.slots import Slot, Slots
from groupflow.store.claims import Claims
from groupflow.store.settlements import Claim, Release, Settlement

AT_ONCE = 500  # claims an exchange: bounds what one script does
UNDER_WAY = 4  # exchanges at a time
PARTS = 2  # of what is in play: an exchange carries one of them
PATIENCE = 0.1  # seconds that a claim may be ready without being begun

log = structlog.get_logger("groupflow.dispatch")


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
        self._slots = Slots(claims.pool)
        self._ahead = Ahead()
        self._ready: deque[tuple[Claim, float]] = deque()  # claims made ahead, and since when
        self._patience: asyncio.TimerHandle | None = None
        self._idle: dict[str, asyncio.Future[None]] = {}  # workers that wait for a claim
        self._workers: set[str] = set()  # those that go on claiming
        self._retiring: set[str] = set()
        self._stir = asyncio.Event()
        self._next = asyncio.Lock()
        self._calls = 0  # reasons to claim for all who are idle, ever
        self._is_empty = False  # the last claim got less than it asked for, and nobody called since
        self._may_claim = True
        self._began: list[float] = []  # when the exchanges under way did
        self._asked = 0  # claims that exchanges under way ask for
        self._session_open = asyncio.Event()
        self._session_open.set()
        self._epoch = 0  # counts the sessions: a claim of an earlier one is not ours any more

    async def next_claim(self, worker: str, finished: Settlement | None) -> Claim | None:
        """Hand in a finished claim and wait for the next one.

        Returns:
            The claim, or ``None`` when no more is claimed, at all or for this worker, and
            `finished` is settled.
        """
        if finished is None:
            self.wake()
        else:
            self._end(finished)
        loop = asyncio.get_running_loop()
        while True:
            if worker in self._retiring:
                if self._slots.has_settled(finished):
                    return None
            elif self._ready:
                return self._ready.popleft()[0]
            elif not self._may_claim and self.is_settled:
                return None
            else:
                self._workers.add(worker)
                self._stir.set()
            self._idle[worker] = turn = loop.create_future()
            await turn

    def handled(self, seconds: float) -> None:
        """An attempt has ended, and took so long."""
        self._ahead.handled(seconds)

    def _end(self, finished: Settlement) -> None:
        if self._slots.end(finished.claim, finished):
            self._stir.set()
        else:
            self.report_lost(finished.claim)

    def wake(self) -> None:
        """Something may be claimable now."""
        self._calls += 1
        self._is_empty = False
        self._stir.set()

    def stop_claiming(self) -> None:
        """Claim no more; what is finished is still settled. Idle workers are told to end."""
        self._may_claim = False
        self._hand_back()
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
        called = (self._retiring | workers) & self._idle.keys()  # some may stay after all
        self._retiring = set(workers)
        self._workers -= workers
        self._call(called)

    def close_session(self) -> None:
        """The session is lost: nothing can be settled or claimed until there is a new one."""
        self._session_open.clear()
        self._epoch += 1
        for claim, _ in self._ready:
            self.report_lost(claim)
        self._ready.clear()
        self._report_all_lost(self._slots.drop_all())

    def open_session(self) -> None:
        """There is a new session."""
        self._session_open.set()
        self.wake()

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits to be settled, here or on its way."""
        return not (self._began or self._slots.due)

    @property
    def ready(self) -> int:
        """How many claims were made ahead and lie ready for workers."""
        return len(self._ready)

    def seconds_in_exchange(self) -> float:
        """How long the oldest exchange under way has taken; 0 where none is. From any thread."""
        now = monotonic()
        return now - min(self._began, default=now)

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
                if not self._slots.unsure or not self._may_claim:
                    continue
                # The lease is over by our clock, or nearly: they are asked once it is renewed.
            except StoreUnavailable as error:
                log.warning("store.unavailable", error=str(error))
            except SessionLost:
                pass  # renewal notices it too, drops the claims and opens a new session
            await backoff.wait()
            self._stir.set()

    async def run_once(self) -> None:
        """One exchange; after any error the same settlements and slots go into another."""
        epoch, calls, was_empty = self._epoch, self._calls, self._is_empty
        due, asked = self._choose()
        finished = [slot.finished for slot in due if slot.finished]
        names = [slot.name for slot in asked]
        began = monotonic()
        self._began.append(began)
        self._asked += len(asked)
        try:
            crash_point("before_settle", finished)
            crash_point("before_claim", names)
            refused, claims = await self._claims.exchange(finished, names)
            crash_point("after_settle", finished)
            crash_point("after_claim", claims)
        except BaseException:
            self._take_back(due, asked, epoch)
            raise
        finally:
            self._began.remove(began)
            self._asked -= len(asked)
        count_exchange(self.measures, finished, refused, claims)
        self._report_all_lost(refused)
        if epoch == self._epoch:
            self._slots.arrive(due, asked, claims)
            if due or asked:
                all_came = not was_empty and len(claims) == len(asked)
                self._look_ahead(monotonic() - began, claims, all_came=all_came)
            self._deliver(claims)
        else:  # the session went while the claims were on their way
            self._slots.drop(due, asked)
            for claim in claims:
                self.report_lost(claim)
        if any(claim.task.crashes for claim in (*claims, *(each.claim for each in finished))):
            self.wake()  # a suspect comes alone, and behind the end of one there may be the next
        elif asked:
            self._note_what_came(len(claims) == len(asked), calls, was_empty)
        if self._slots.due:
            self._stir.set()
        if not self._may_claim and self.is_settled:
            crash_point("before_leave")
            self._call(self._idle.keys())
        elif self._retiring:
            self._call(self._retiring & self._idle.keys())

    def _choose(self) -> tuple[list[Slot], list[Slot]]:
        """Slots for one exchange: those that it settles for, and those that it asks a claim for.

        Slots that travel together stay together, and their workers wait for each other. So half of
        what is in play goes, while the store works on the other half.
        """
        in_play = self._slots.claimed + self._slots.due + self._asked + self._wanted(0)
        share = max(1, min(AT_ONCE, -(-in_play // PARTS)))
        due = self._slots.take_due(share)
        if self._slots.due:
            self._stir.set()  # the rest goes with another exchange
        asked: list[Slot] = []
        if self._may_claim and self.holds_lease():
            asked = self._slots.choose(due, min(share, self._wanted(len(due))), AT_ONCE)
        if len(asked) < len(due):
            self._is_empty = False  # some of what they free is left
        return due, asked

    def _wanted(self, freed: int) -> int:
        """How many claims there is room for, with `freed` slots about to be settled.

        Where the store was empty, no more than that: what they free they can claim themselves, and
        of all else there is a call.
        """
        if not self._workers:
            return 0
        room = len(self._workers) + self._ahead.number - self._slots.claimed - self._asked
        return max(0, min(room, freed) if self._is_empty else room)

    def _take_back(self, due: list[Slot], asked: list[Slot], epoch: int) -> None:
        """After an error: all of it goes into another exchange, unless its session is over."""
        if epoch == self._epoch:
            self._slots.turn_back(due, asked)
        else:
            self._report_all_lost(self._slots.drop(due, asked))
        self.wake()

    def _look_ahead(self, seconds: float, claims: Sequence[Claim], *, all_came: bool) -> None:
        """Learn from an exchange how many claims to make ahead."""
        self._ahead.exchanged(seconds, len(self._workers), len(claims), all_came=all_came)
        if self._claims.beside_suspect:
            # It may end this process again: as few as can be should go with it.
            self._ahead.refrain()

    def _note_what_came(self, all_claimed: bool, calls: int, was_empty: bool) -> None:
        """Learn from an exchange whether more can be claimed; `calls` were made before it.

        One that was made since may have found no room to ask for anything.
        """
        if calls != self._calls:
            self._stir.set()
        elif not all_claimed:
            self._is_empty = True
        elif not was_empty and self._wanted(0):
            self.wake()  # there may be more than one exchange carries

    def _deliver(self, claims: Sequence[Claim]) -> None:
        """Have claims ready, and call as many workers as wait for one."""
        if not claims:
            return
        now = monotonic()
        self._ready.extend((claim, now) for claim in claims)
        if not (self._may_claim and self.holds_lease()):
            # A stop or the lease's end came while they were on their way.
            self._hand_back()
            return
        if self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(PATIENCE, self._look_at_ready)
        self._call_idle(len(self._ready))

    def _call_idle(self, number: int) -> None:
        """Let so many idle workers look again, the longest idle first."""
        while number > 0 and self._idle:
            worker = next(iter(self._idle))
            number -= worker in self._workers and not self._idle[worker].done()
            self._call([worker])

    def _call(self, workers: Iterable[str]) -> None:
        for worker in list(workers):
            turn = self._idle.pop(worker)
            if not turn.done():  # else its worker was cancelled
                turn.set_result(None)

    def _look_at_ready(self) -> None:
        """Hand back what was claimed ahead and is not begun: others may have workers for it."""
        self._patience = None
        if not self._ready:
            return
        age = monotonic() - self._ready[0][1]
        if age < PATIENCE:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(PATIENCE - age, self._look_at_ready)
        else:
            self._ahead.refrain()
            self._hand_back()

    def _hand_back(self) -> None:
        """Release the claims that no worker has begun."""
        ready, self._ready = self._ready, deque()
        for claim, _ in ready:
            self._end(Release(claim))

    def _report_all_lost(self, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            self.report_lost(settlement.claim)

    def report_lost(self, claim: Claim) -> None:
        """A claim was lost: its task belongs to somebody else, and nothing was written."""
        self._slots.end(claim, None)
        self.measures.lost += 1
        log.warning(
            "claim.lost",
            task=claim.task.id,
            group=claim.task.group,
            fence=claim.fence,
            slot=claim.slot,
        )
