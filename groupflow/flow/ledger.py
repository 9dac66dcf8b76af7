"""What one store has given a pool, what is asked of it, and what it is owed.

Exchanges (`exchange.py`) write here; a dispatcher reads here who goes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from groupflow.flow.counting import report_lost
from groupflow.flow.demand import Asked, Demand
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.slots import Exchange, Slot, Slots, UnderWay
from groupflow.store.claims import Claims
from groupflow.store.given import Claim
from groupflow.store.scripts import Order

UNDER_WAY = 4  # exchanges at a time


class Ledger:
    """The claims of one pool in one store; see `Source`."""

    _slots: Slots  # of the session that is open, or opens next

    def __init__(
        self,
        dispatcher: Dispatcher,
        claims: Claims,
        holds_lease: Callable[[], bool],
        order: Order,
    ) -> None:
        """Nothing is held yet, nor asked for."""
        self.pool = claims.pool
        self.position = 0.0
        self._is_fair = order != "oldest"
        # Whether that store's lease still runs by our own clock. A claim that was on its way while
        # this process was frozen is not begun: others may have gone on without it.
        self.holds_lease = holds_lease
        self.demand = Demand()
        self._dispatcher = dispatcher
        self._claims = claims
        self._under_way = UnderWay()
        self._is_well = True  # the last exchange was answered
        self._stir = asyncio.Event()
        self._session_open = asyncio.Event()
        self._session_open.set()

    def wake(self) -> None:
        """Something may be claimable now."""
        if self._is_fair and not self.has_some:  # what it didn't want then isn't made up for
            self.position = max(self.position, self._dispatcher.hindmost)
        self.demand.call()
        self._stir.set()

    def stir(self) -> None:
        """There may be room for more claims, or something to be settled."""
        self._stir.set()

    @property
    def has_asked(self) -> bool:
        """Whether claims are asked for, without an answer yet."""
        return self._under_way.asked > 0

    @property
    def waits(self) -> bool:
        """Whether there may be something in it, and it could ask, and has not asked for any yet."""
        if (
            self._under_way.asked
            or not self.has_some
            or len(self._under_way.exchanges) == UNDER_WAY
        ):
            return False
        return self.demand.wanted(self._dispatcher.workers, self.held) > 0

    @property
    def has_some(self) -> bool:
        """Whether there may be something in it to claim."""
        return (
            not self.demand.is_empty
            and self._is_well
            and self._session_open.is_set()
            and self._dispatcher.may_claim
            and self.holds_lease()
        )

    @property
    def held(self) -> int:
        """How many claims are in workers' hands, ready for them, or asked for."""
        return self._slots.claimed + self._under_way.asked

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits to be settled or found out, here or on its way.

        What is unsure without the lease is for others to find: it is handed over.
        """
        if self._under_way.exchanges or self._slots.due:
            return False
        return not (self._slots.unsure and self.holds_lease())

    def seconds_in_exchange(self) -> float:
        """How long the oldest exchange under way has waited; 0 where none is. From any thread.

        While its answer is coming, however slowly, it isn't waiting.
        """
        return self._under_way.seconds(monotonic(), self._claims.extended)

    def _set_out(
        self,
        settling: list[Slot],
        asking: list[Slot],
        asked: Asked,
        running: Sequence[Slot] = (),
    ) -> Exchange:
        dispatcher = self._dispatcher
        exchange = Exchange(self._slots, settling, asking, asked, monotonic(), running)
        self._under_way.begin(exchange)
        self._count(asked.number)
        if len(dispatcher.sources) > 1:
            dispatcher.make_room()
        return exchange

    def _count(self, asked: int) -> None:
        """So many more claims are asked for, or fewer."""
        self._dispatcher.held += asked
        if self._is_fair:
            self.position += asked

    def _end(self, exchange: Exchange) -> None:
        self._under_way.end(exchange)
        self._count(-exchange.asked.number)

    def _arrive(self, exchange: Exchange, claims: Sequence[Claim]) -> list[Slot]:
        """The slots that hold the claims; none where the session went meanwhile."""
        if exchange.slots is self._slots:
            self._dispatcher.held += len(claims)
            return self._slots.arrive(exchange, claims)
        for slot in exchange.settling:
            slot.finished = None
        for claim in claims:
            report_lost(self._dispatcher.measures, claim)
        return []

    def _advance(self, claims: Sequence[Claim]) -> None:
        """Other stores may have what goes before the rest of this one."""
        if self._is_fair:
            self.position += len(claims)
        else:
            self.position = claims[-1].task.enqueued_at

    def _drop(self, slots: Iterable[Slot]) -> None:
        """What they should have settled is somebody else's."""
        for slot in slots:
            if slot.finished is not None:
                report_lost(self._dispatcher.measures, slot.finished.claim)
                slot.finished = None
