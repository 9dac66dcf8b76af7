"""Claims of one pool and partition: held, asked for, and in flight.

Exchanges (`exchange.py`) write here; a dispatcher reads here which partition goes first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from groupflow.flow.counting import report_lost
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.prefetch import Prefetch
from groupflow.flow.slots import Exchange, Slot, Slots
from groupflow.store.claims import Claims
from groupflow.store.given import Claim
from groupflow.store.scripts import Order

IN_FLIGHT = 4  # exchanges in flight at a time


class InFlight:
    """The claims of one pool in one partition; see `ClaimSource`."""

    _slots: Slots  # of the session that is open, or opens next

    def __init__(
        self,
        dispatcher: Dispatcher,
        claims: Claims,
        holds_lease: Callable[[], bool],
        order: Order,
    ) -> None:
        """Begins with nothing held or asked for."""
        self.pool = claims.pool
        self.position = 0.0
        self._is_fair = order != "oldest"
        # Whether the partition's lease still runs by our own clock. A claim that was in flight
        # while this process was frozen is not begun: another daemon may have taken it over.
        self.holds_lease = holds_lease
        self.prefetch = Prefetch()
        self.cancels = OrderedDict[str, float]()
        self._dispatcher = dispatcher
        self._claims = claims
        self._exchanges: list[Exchange] = []  # in flight
        self._outliving = 0  # workers that still have claims of lost sessions, and can take none
        self._is_well = True  # the last exchange was answered
        self._asked = 0  # claims that these ask for
        self._is_stirred = False  # there is a reason for another exchange
        self._resting = deque[asyncio.Future[None]]()  # loops that wait for one
        self._session_open = asyncio.Event()
        self._session_open.set()

    def wake(self) -> None:
        """Something may be claimable now."""
        if self._is_fair and not self.has_some:  # it doesn't make up for the time without claims
            self.position = max(self.position, self._dispatcher.lowest_position)
        self.prefetch.call()
        self.stir()

    def stir(self) -> None:
        """There may be room for more claims, or something to be settled."""
        if self._is_stirred:
            return
        self._is_stirred = True
        while self._resting:
            turn = self._resting.popleft()
            if not turn.done():  # else its loop was cancelled
                turn.set_result(None)
                return

    async def _stirred(self) -> None:
        """Wait for a reason for an exchange: one loop goes on for each."""
        if self._is_stirred:
            await asyncio.sleep(0)  # attempts that were made just now may end first
        while not self._is_stirred:
            turn = asyncio.get_running_loop().create_future()
            self._resting.append(turn)
            await turn
        self._is_stirred = False

    @property
    def has_asked(self) -> bool:
        """Whether claims are asked for, without an answer yet."""
        return self._asked > 0

    @property
    def waits(self) -> bool:
        """Whether it may have claims, and could ask for them, but hasn't asked yet."""
        if self._asked or not self.has_some or len(self._exchanges) == IN_FLIGHT:
            return False
        return self.prefetch.wanted(self._dispatcher.workers, self.held) > 0

    @property
    def has_some(self) -> bool:
        """Whether it may have something to claim."""
        return (
            not self.prefetch.is_empty
            and self._is_well
            and self._session_open.is_set()
            and self._dispatcher.may_claim
            and self.holds_lease()
        )

    @property
    def held(self) -> int:
        """How many claims there are with workers, ready for them, or asked for."""
        return self._slots.claimed + self._outliving + self._asked

    @property
    def is_settled(self) -> bool:
        """Whether no slot waits to be settled or found out, here or in flight.

        Without the lease unsure slots don't count: another daemon takes their claims over.
        """
        if self._exchanges or self._slots.due:
            return False
        return not (self._slots.unsure and self.holds_lease())

    def seconds_in_exchange(self) -> float:
        """How long the oldest exchange in flight has waited; 0 where none is. From any thread.

        An exchange whose answer is coming, however slowly, isn't waiting.
        """
        now = monotonic()
        began = min((each.began for each in tuple(self._exchanges)), default=now)
        return max(0.0, now - max(began, self._claims.extended))

    def _begin_with(self, exchange: Exchange) -> None:
        self._exchanges.append(exchange)
        self._asked += exchange.asked.number
        if self._is_fair:
            self.position += exchange.asked.number

    def _end(self, exchange: Exchange) -> None:
        self._exchanges.remove(exchange)
        self._asked -= exchange.asked.number
        if self._is_fair:
            self.position -= exchange.asked.number

    def _arrive(self, exchange: Exchange, claims: Sequence[Claim]) -> list[Slot]:
        """The slots that hold the claims; none where the session ended meanwhile."""
        if exchange.slots is self._slots:
            return self._slots.arrive(exchange, claims)
        for slot in exchange.settling:
            slot.finished = None
        self._drop(exchange.running)  # those that ended meanwhile
        for claim in claims:
            report_lost(self._dispatcher.measures, claim)
        return []

    def _advance(self, claims: Sequence[Claim]) -> None:
        """Move the partition's position on, so that others may go before it."""
        if self._is_fair:
            self.position += len(claims)
        else:
            self.position = claims[-1].task.enqueued_at

    def _drop(self, slots: Iterable[Slot]) -> None:
        """Report as lost what these slots should have settled."""
        for slot in slots:
            if slot.finished is not None:
                report_lost(self._dispatcher.measures, slot.finished.claim)
                slot.finished = None
