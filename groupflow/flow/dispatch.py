"""dispatch: one round trip settles everything finished and claims for everybody idle.

Each worker hands in what it finished and waits for its next claim; while one exchange with the
store is under way, whatever comes in gathers for the next. So the number of round trips depends on
how long one takes, not on how many workers there are.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from time import monotonic

import structlog

from groupflow.core.crashpoints import crash_point
from groupflow.core.errors import SessionLost, StoreUnavailable
from groupflow.core.measures import PoolMeasures
from groupflow.flow.backoff import Backoff
from groupflow.flow.counting import count_exchange
from groupflow.store.claims import Claims
from groupflow.store.settlements import Claim, Release, Settlement

AT_ONCE = 500  # settlements, and idle workers, an exchange: bounds what one script does

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
        self._finished: list[Settlement] = []
        self._idle: dict[str, asyncio.Future[tuple[Claim | None, int]]] = {}
        self._stir = asyncio.Event()
        self._may_claim = True
        self._exchange_began = 0.0
        self._session_open = asyncio.Event()
        self._session_open.set()
        self._epoch = 0  # counts the sessions: a claim of an earlier one is not ours any more

    async def next_claim(self, worker: str, finished: Settlement | None) -> Claim | None:
        """Hand in a finished claim and wait for the next one.

        Returns:
            The claim, or ``None`` when this pool claims no more and `finished` is settled.
        """
        if finished is not None:
            self._finished.append(finished)
        while True:
            future: asyncio.Future[tuple[Claim | None, int]] = (
                asyncio.get_running_loop().create_future()
            )
            self._idle[worker] = future
            self._stir.set()
            claim, epoch = await future
            if claim is None or epoch == self._epoch:
                return claim
            self.report_lost(claim)  # the session went while the claim was on its way to the worker

    def wake(self) -> None:
        """Something may be claimable now."""
        self._stir.set()

    def stop_claiming(self) -> None:
        """Claim no more; what is finished is still settled. Idle workers are told to end."""
        self._may_claim = False
        self._stir.set()
        crash_point("during_drain")

    def close_session(self) -> None:
        """The session is lost: nothing can be settled or claimed until there is a new one."""
        self._session_open.clear()
        self._epoch += 1

    def open_session(self) -> None:
        """There is a new session. What was finished under the old one is not ours to settle."""
        self._report_all_lost(self._finished)
        self._finished = []
        self._session_open.set()
        self._stir.set()

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits to be settled."""
        return not self._finished

    def seconds_in_exchange(self) -> float:
        """How long the exchange under way has taken; 0 where none is. A supervisor asks."""
        return monotonic() - self._exchange_began if self._exchange_began else 0.0

    async def run(self) -> None:
        """Exchange with the store for ever.

        Raises:
            SessionReplaced: the daemon's name was taken over.
        """
        backoff = Backoff()
        while True:
            await self._stir.wait()
            await self._session_open.wait()
            # One turn of the loop lets everybody who became ready together travel together.
            await asyncio.sleep(0)
            self._stir.clear()
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
        """One exchange; after any error the same settlements and workers go into the next."""
        epoch = self._epoch
        finished, self._finished = self._finished[:AT_ONCE], self._finished[AT_ONCE:]
        may_claim = self._may_claim and self.holds_lease()
        idle = list(itertools.islice(self._idle, AT_ONCE)) if may_claim else []
        self._exchange_began = monotonic()
        try:
            crash_point("before_settle", finished)
            crash_point("before_claim", idle)
            refused, claims = await self._claims.exchange(finished, idle)
            crash_point("after_settle", finished)
            crash_point("after_claim", claims)
        except BaseException:
            if epoch == self._epoch:
                self._finished = finished + self._finished
            else:
                self._report_all_lost(finished)
            raise
        finally:
            self._exchange_began = 0.0
        count_exchange(self.measures, finished, refused, claims)
        for settlement in refused:
            self.report_lost(settlement.claim)
        for claim in claims:
            self._deliver(claim, epoch)
        if self._finished or (self._idle and idle and len(claims) == len(idle)):
            self._stir.set()  # there may be more than one exchange carries
        if not self._may_claim and self.is_settled:
            self._dismiss()

    def _deliver(self, claim: Claim, epoch: int) -> None:
        """Give a claim to its worker; `epoch` is the session that it was made under."""
        future = self._idle.get(claim.worker)
        is_wanted = self._may_claim and self.holds_lease()
        if epoch == self._epoch and (future is None or future.done() or not is_wanted):
            # Its worker is gone, or a stop or the lease's end came while it was on its way: back.
            self._finished.append(Release(claim))
            self._stir.set()
        elif future is not None and not future.done():
            del self._idle[claim.worker]
            future.set_result((claim, epoch))

    def _report_all_lost(self, settlements: list[Settlement]) -> None:
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

    def _dismiss(self) -> None:
        crash_point("before_leave")
        for future in self._idle.values():
            if not future.done():
                future.set_result((None, self._epoch))
        self._idle.clear()
