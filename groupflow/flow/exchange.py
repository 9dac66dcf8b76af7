"""One round trip settles everything finished and claims for every idle worker.

Each worker hands in what it finished and takes its next claim; what workers hand in while exchanges
are in flight gathers for the next one. So the number of round trips depends on how long one takes,
not on how many workers there are.

Where several partitions serve a pool, an exchange with one has to carry as much as if it were
alone, or each costs what all of them should. So a partition asks for nothing until there is room
for a piece (`Dispatcher.granted`), and a few settlements wait for the exchange in flight
(`_gathers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from time import monotonic

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import ServerUnreachable, SessionLost, StoreUnavailable
from groupflow.crashpoints import crash_point
from groupflow.flow.counting import (
    UnknownTypes,
    count_exchange,
    report_crowded_out,
    report_drained,
    report_ended,
    report_given_up,
    report_lost,
)
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.in_flight import IN_FLIGHT, InFlight
from groupflow.flow.slots import PACE, RUN_FOR, Exchange, Slot, Slots
from groupflow.store.claims import Claims, ExchangeReply
from groupflow.store.progress import Said
from groupflow.store.scripts import Order
from groupflow.store.settlements import (
    Complete,
    Proceed,
    Release,
    Settlement,
    one_by_one,
)

CANCELS_KEPT = 60.0  # seconds: longer than a claim that was made before stays without an attempt
LATE = 120.0  # seconds for which a kernel may resend what was written on a lost connection

log = structlog.get_logger("groupflow.exchange")


class Exchanger(InFlight):
    """The exchanges of one pool with one partition."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        claims: Claims,
        holds_lease: Callable[[], bool] = lambda: True,
        order: Order = "oldest",
        run_for: float = RUN_FOR,
    ) -> None:
        """Serves a dispatcher from here on, with its pool's claims in one partition.

        A run goes on for `run_for` seconds at most. `order` says which partition goes first: the
        one whose claims are the oldest, or the one that has had the fewest since it last had none.
        """
        super().__init__(dispatcher, claims, holds_lease, order)
        self._run_for = run_for
        self._slots = Slots(self, self.pool, run_for)
        self._unknown_types = UnknownTypes()
        self._pace: asyncio.TimerHandle | None = None  # when runs tell what they have done
        self._late_until: float | None = None  # until then an unanswered call may run (monotonic)
        dispatcher.sources.append(self)

    def adopt(self, runs: Mapping[str, int]) -> None:
        """Take over, by rule, how many tasks of a group one claim covers, from the next one on."""
        self._claims.adopt(runs)

    def settle(self, slot: Slot, settlement: Settlement | None, *, works_on: bool) -> bool:
        """As in `ClaimSource`."""
        run, done = slot.run, settlement if isinstance(settlement, Complete) else None
        may_go_on = run is not None and run.goes_on and works_on and self._slots.has(slot)
        if run and done and may_go_on and self.holds_lease():
            self._slots.go_on(slot, done)
            # The next task begins before the exchange that tells of this one does: it doesn't wait
            # while that one is made.
            if run.tells_at <= monotonic():
                self.stir()
            else:
                self._tell_soon()
            return True
        self.end(slot, settlement)
        return False

    def said(self) -> Iterator[Said]:
        """What handlers have said of their progress since this was last asked."""
        return self._slots.said()

    def _tell_soon(self) -> None:
        if self._pace is None:
            self._pace = asyncio.get_running_loop().call_later(PACE, self._tell_of_runs)

    def _tell_of_runs(self) -> None:
        self._pace = None
        self.stir()

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        """A slot's claim has ended, by a settlement, or since it was lost."""
        claim, is_ours = slot.held, self._slots.has(slot)
        if slot.run is not None and settlement is not None:
            self.prefetch.handled(slot.run.seconds)  # a run takes a worker's time for all its tasks
        if is_ours:
            self._slots.end(slot, settlement)
        else:
            self._outliving -= 1
        if is_ours and settlement is not None:
            self.stir()
        else:  # lost, alone or with its session
            report_lost(self._dispatcher.measures, claim)

    def close_session(self) -> None:
        """The session is lost: drop its claims; no exchange begins until there is a new one."""
        self._session_open.clear()
        lost, self._slots = self._slots, Slots(self, self.pool, self._run_for)
        ready = self._dispatcher.withdraw(self)
        self._outliving += lost.claimed - len(ready)
        for slot in ready:
            report_lost(self._dispatcher.measures, slot.held)
        self._drop(lost.due)
        self._let_go()

    def open_session(self) -> None:
        """There is a new session: exchange again."""
        self._session_open.set()
        self.wake()

    def doubt(self) -> None:
        """The store may have lost the last settlements: ask every free slot."""
        self._slots.doubt()
        self.stir()

    def doubt_late_calls(self) -> None:
        """An unanswered call may have run late and given a free slot a claim: ask them all."""
        if self._late_until is None:
            return
        if monotonic() > self._late_until:
            self._late_until = None
        self.doubt()

    def hold_back(self, groups: Set[str] | None) -> None:
        """End runs of these groups (``None``: all), and release what has not begun."""
        self._slots.end_runs(groups)
        for exchange in self._exchanges:
            exchange.hold_back(groups)
        for slot in self._dispatcher.withdraw(self, groups):
            self.end(slot, Release(slot.held))

    def cancel(self, ids: Set[str]) -> None:
        """Begin no attempt at these tasks; the store ends them when their claims come back."""
        now = monotonic()
        for id_ in ids:
            self.cancels[id_] = now
            self.cancels.move_to_end(id_)
        while self.cancels and now - next(iter(self.cancels.values())) > CANCELS_KEPT:
            self.cancels.popitem(last=False)

    async def run(self) -> None:
        """Exchange with the store for ever.

        Raises:
            SessionReplaced: the daemon's name was taken over.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._exchange_for_ever())

    async def _exchange_for_ever(self) -> None:
        backoff = Backoff()
        while True:
            await self._stirred()
            await self._session_open.wait()
            if self._slots.claimed:
                # In one turn of the loop, all workers that end together hand in their slots.
                await asyncio.sleep(0)
                self._is_stirred = False  # what they said so far is what is carried now
            try:
                await self.run_once()
                backoff.reset()
                if not self._slots.unsure:
                    continue
                if self.holds_lease():
                    self.stir()  # the next portion of them
                    continue
                # The lease is over by our clock, or nearly: unsure slots wait for its renewal.
            except (StoreUnavailable, ServerUnreachable) as error:
                self._late_until = monotonic() + LATE
                log.debug("exchange.unanswered", error=str(error))
            except SessionLost:
                pass  # the renewer notices it too, drops the claims and opens a new session
            await asyncio.sleep(backoff.next())
            self._is_well = True  # until the next exchange shows otherwise
            self.stir()

    async def run_once(self) -> None:
        """Make one exchange; after any error another carries the same settlements and slots."""
        exchange = self._begin()
        if exchange is None:
            self._let_go()
            return
        finished = exchange.tell()
        names = [slot.name for slot in exchange.asking]
        try:
            crash_point("before_settle", finished)
            crash_point("before_claim", names)
            answer = await self._claims.exchange(finished, names, exchange.beyond)
            crash_point("after_settle", finished)
            crash_point("after_claim", answer.claims)
        except BaseException:
            self._end(exchange)
            self.prefetch.failed(exchange.asked)
            self._take_back(exchange)
            raise
        self._end(exchange)
        self._is_well = True
        measures = self._dispatcher.measures
        is_otherwise = answer.crowded_out or answer.given_up
        written = [answer.written(each) for each in finished] if is_otherwise else finished
        count_exchange(measures, written, answer)
        measures.superseded += answer.superseded
        report_drained(answer.claims)
        for advance in answer.crowded_out:
            report_crowded_out(advance)
        self._unknown_types.tell(answer.unknown)
        for defer in answer.given_up:
            report_given_up(defer)
        for settlement in answer.cancelled:
            report_ended(settlement.claim, "cancelled")
        for settlement in answer.replaced:
            report_ended(settlement.claim, "superseded")
        for settlement in one_by_one(answer.refused):
            report_lost(self._dispatcher.measures, settlement.claim)
        self._steer_runs(exchange, answer)
        self._take(exchange, finished, answer)

    def _steer_runs(self, exchange: Exchange, answer: ExchangeReply) -> None:
        """End runs that the store wants to end with the task that runs; lost ones, at once."""
        lost = {each.claim.slot for each in answer.refused if isinstance(each, Proceed)}
        for slot in exchange.running:
            if slot.run is not None and slot.name in answer.ending | lost:
                slot.run.is_ending = True
            if slot.name in lost and slot.claim is not None and slot.lose is not None:
                slot.lose()

    def _begin(self) -> Exchange | None:
        """Choose what the next exchange carries; ``None`` where there is nothing."""
        slots, dispatcher, prefetch = self._slots, self._dispatcher, self.prefetch
        workers, taken, due = dispatcher.workers, dispatcher.taken(self), len(slots.due)
        share = prefetch.share(dispatcher.held + due + prefetch.wanted(workers, taken))
        freed = min(share, due)
        may_ask, wanted = self.holds_lease(), 0
        if dispatcher.may_claim and may_ask:
            wanted = dispatcher.granted(self, prefetch.wanted(workers, taken, freed))
        if not wanted and self._gathers(freed, share):
            freed = 0
        settling = slots.take_due(freed)
        if settling and slots.due:
            self.stir()  # the rest goes with another exchange
        # At a stop unsure slots are asked too, and what they hold is released.
        asking = slots.choose(settling, min(share, wanted), prefetch.portion) if may_ask else []
        running = slots.take_running()
        if slots.running:
            self._tell_soon()
        exchange = None
        if settling or asking or running:
            asked = prefetch.ask(len(asking), len(settling))
            beyond = max(0, len(asking) - dispatcher.waiting)
            exchange = Exchange(slots, settling, asking, asked, monotonic(), running, beyond)
            self._begin_with(exchange)
        if len(dispatcher.sources) > 1:
            dispatcher.make_room()
        return exchange

    def _gathers(self, due: int, share: int) -> bool:
        """Whether what is due waits for the exchange in flight, and for more.

        A lone partition fills its exchanges by itself.
        """
        dispatcher = self._dispatcher
        is_one_of_several = (
            len(dispatcher.sources) > 1 and dispatcher.may_claim and dispatcher.held > self.held
        )
        return is_one_of_several and bool(self._exchanges) and due < share

    def _take_back(self, exchange: Exchange) -> None:
        """After an error, keep all of it for another exchange, unless its session is over."""
        self._is_well = False
        if exchange.slots is self._slots:
            self._slots.turn_back(exchange)
        else:
            self._drop((*exchange.settling, *exchange.running))
        self.wake()
        self._let_go()
        self._dispatcher.make_room()

    def _let_go(self) -> None:
        """Let workers end: at a stop, without lease or session, unsure slots need no answer."""
        self._dispatcher.answered(is_short=False)

    def _take(
        self, exchange: Exchange, finished: Sequence[Settlement], answer: ExchangeReply
    ) -> None:
        """Give claims to the dispatcher, and learn from them."""
        dispatcher, prefetch, came = self._dispatcher, self.prefetch, len(answer.claims)
        slots = self._arrive(exchange, answer.claims)
        if exchange.slots is self._slots:
            seconds = monotonic() - exchange.began
            largest = max([claim.bytes for claim in answer.claims], default=0)
            tasks = came + sum([len(claim.run) for claim in answer.claims])
            prefetch.answered(
                exchange.asked, came, dispatcher.workers, seconds, largest=largest, tasks=tasks
            )
            if exchange.asking:
                prefetch.is_kept = answer.is_kept
            if answer.beside_quarantined:
                # The quarantined task may crash this process again: few claims should go with it.
                prefetch.refrain()
            if slots:
                self._advance(answer.claims)
                self._deliver(exchange, slots)
        told = [*answer.claims, *[each.claim for each in finished]]
        if answer.is_kept or [claim for claim in told if claim.task.crashes]:
            self.wake()  # quarantined tasks come alone: the next may come once this has ended
        elif prefetch.goes_on(exchange.asked, came, dispatcher.workers, dispatcher.taken(self)):
            self.stir()
        if self._slots.due:
            self.stir()
        if self._slots.running:
            self._tell_soon()
        is_short = came < exchange.asked.number
        dispatcher.answered(is_short=is_short)
        if not is_short and len(dispatcher.sources) > 1:
            dispatcher.make_room()  # another partition may have the lowest position now

    def _deliver(self, exchange: Exchange, slots: Sequence[Slot]) -> None:
        """Let slots begin, unless a stop, a hold or the lease's end came meanwhile."""
        if not self._dispatcher.may_claim or not self.holds_lease():
            held_back = [*self._dispatcher.withdraw(self), *slots]
        else:
            held_back = [slot for slot in slots if exchange.holds_back(slot)]
            self._dispatcher.deliver([slot for slot in slots if slot not in held_back])
        for slot in held_back:
            self.end(slot, Release(slot.held))
