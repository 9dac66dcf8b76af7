"""One round trip settles everything finished and claims for everybody idle.

Each worker hands in what it finished and takes its next claim; whatever comes while exchanges with
the store are under way gathers for the next one. So the number of round trips depends on how long
one takes, not on how many workers there are.

Where several stores serve a pool, what travels with one of them has to be as much at a time as if
it were alone, or each costs what all of them should: so a store asks for nothing until there is
room for a piece (`Dispatcher.granted`), and what little there is to settle waits for the exchange
that is under way (`_gathers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from time import monotonic

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import SessionLost, SessionReplaced, StoreUnavailable
from groupflow.crashpoints import crash_point
from groupflow.flow.counting import count_exchange, report_crowded_out, report_lost
from groupflow.flow.dispatcher import Dispatcher
from groupflow.flow.ledger import UNDER_WAY, Ledger
from groupflow.flow.slots import RUN_FOR, Exchange, Slot, Slots
from groupflow.store.claims import Answer, Claims
from groupflow.store.scripts import Order
from groupflow.store.settlements import (
    Complete,
    Proceed,
    Release,
    Settlement,
    one_by_one,
)

PACE = 0.002  # seconds for which what a run has done may wait for an exchange: most runs end sooner
FEW = 2  # claims in play: as many don't wait for each other; more cost less in one exchange
LATE = 120.0  # seconds for which a kernel may send again what was written on a lost connection

log = structlog.get_logger("groupflow.exchange")


class Exchanger(Ledger):
    """The exchanges of one pool with one store."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        claims: Claims,
        holds_lease: Callable[[], bool] = lambda: True,
        order: Order = "oldest",
        run_for: float = RUN_FOR,
    ) -> None:
        """Serves a dispatcher from here on, with its pool's claims in one store.

        A run goes on for `run_for` seconds at most. By `order` room is shared with other stores:
        the one whose claims are the oldest goes first, or the one that has had the fewest since it
        last had none.
        """
        super().__init__(dispatcher, claims, holds_lease, order)
        self._run_for = run_for
        self._slots = Slots(self, self.pool, run_for)
        self._next = asyncio.Lock()
        self._pace: asyncio.TimerHandle | None = None  # runs have something to tell then
        self._late_until: float | None = None  # what got no answer may still run (monotonic)
        dispatcher.sources.append(self)

    def adopt(self, runs: Mapping[str, int]) -> None:
        """By rule, how many tasks of a group are run under one claim, from the next one on."""
        self._claims.adopt(runs)

    async def settle(
        self, slot: Slot, settlement: Settlement | None, *, works_on: bool, hops: bool
    ) -> bool:
        """As in `Source`."""
        if works_on and isinstance(settlement, Complete):
            run = slot.run
            if run is not None and run.goes_on and self._slots.has(slot) and self.holds_lease():
                self._slots.go_on(slot)
                self._tell_soon()
                return True
            if hops and self._may_hop(slot, settlement):
                return await self._hop(slot, settlement)
        self.end(slot, settlement)
        return False

    def _tell_soon(self) -> None:
        if self._pace is None:
            self._pace = asyncio.get_running_loop().call_later(PACE, self._tell_of_runs)

    def _tell_of_runs(self) -> None:
        self._pace = None
        self._stir.set()

    def _may_hop(self, slot: Slot, settlement: Complete) -> bool:
        """Whether the slot of a task that has ended may go on with the next one of its group.

        Where the store had nothing but its own group for it, it tries; what other stores have goes
        before, where they are behind.
        """
        return (
            slot.stays
            and not settlement.claim.task.crashes
            and self._is_well
            and self.held <= FEW
            and self._slots.has(slot)
            and self._session_open.is_set()
            and self.holds_lease()
            and self._dispatcher.granted(self, 1) > 0
        )

    async def _hop(self, slot: Slot, settlement: Complete) -> bool:
        """Settle a slot's task, and claim for it again: the next one of its group, nearly always.

        It is a small exchange of its own. Where it fails, all of it goes with the next one.

        Returns:
            Whether the slot holds a claim.
        """
        lifted = self._slots.lift(slot, settlement)
        self._dispatcher.held -= 1
        exchange = self._set_out(lifted, [slot], self.demand.ask_one())
        try:
            crash_point("before_settle")
            crash_point("before_claim")
            answer = await self._claims.go_on(settlement)
            crash_point("after_settle")
            crash_point("after_claim", answer.claims)
        except BaseException as error:
            self._end(exchange)
            self._take_back(exchange)
            if isinstance(error, (StoreUnavailable, SessionLost, SessionReplaced)):
                return False  # the next exchange meets the same, and says so
            raise
        self._end(exchange)
        count_exchange(self._dispatcher.measures, [settlement], answer.refused, answer.claims)
        if answer.refused:
            report_lost(self._dispatcher.measures, settlement.claim)
        if answer.beside_suspect:
            self.demand.refrain()
        held = self._arrive(exchange, answer.claims)
        if held and not self._held_back(exchange, held):
            self._advance(answer.claims)
            return True
        for each in held:
            self.end(each, Release(each.held))
        self.wake()
        self._dispatcher.answered(self, is_short=False)
        return False

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        """A slot's claim has ended, by a settlement, or since it was lost."""
        claim, is_ours = slot.held, self._slots.has(slot)
        if slot.run is not None and settlement is not None:
            self.demand.handled(slot.run.seconds)  # of a worker's time, a run takes as much
        if is_ours:
            self._slots.end(slot, settlement)
            self._dispatcher.held -= 1
        if is_ours and settlement is not None:
            self._stir.set()
        else:  # a session that was lost took all of its claims along
            report_lost(self._dispatcher.measures, claim)

    def close_session(self) -> None:
        """The session is lost: nothing can be settled or claimed until there is a new one."""
        self._session_open.clear()
        lost, self._slots = self._slots, Slots(self, self.pool, self._run_for)
        self._dispatcher.held -= lost.claimed
        for slot in self._dispatcher.withdraw(self):
            report_lost(self._dispatcher.measures, slot.held)
        self._drop(lost.due)
        self._let_go()

    def open_session(self) -> None:
        """There is a new session."""
        self._session_open.set()
        self.wake()

    def doubt(self) -> None:
        """The store may have lost what was settled last."""
        self._slots.doubt()
        self._stir.set()

    def doubt_late_calls(self) -> None:
        """A call that got no answer may have run since then: its claim came to a free slot."""
        if self._late_until is None:
            return
        if monotonic() > self._late_until:
            self._late_until = None
        self.doubt()

    def hold_back(self, groups: Set[str] | None) -> None:
        """What was claimed of these groups (none: of all) and has not begun goes back."""
        self._slots.end_runs(groups)
        self._under_way.hold_back(groups)
        for slot in self._dispatcher.withdraw(self, groups):
            self.end(slot, Release(slot.held))

    def _held_back(self, exchange: Exchange, slots: Sequence[Slot]) -> list[Slot]:
        """Which may not begin: a stop, a hold or the lease's end came meanwhile."""
        if not self._dispatcher.may_claim or not self.holds_lease():
            return [*slots]
        return [slot for slot in slots if exchange.holds_back(slot)]

    @property
    def wants(self) -> bool:
        """Whether there may be something in it to claim, and room for that."""
        dispatcher = self._dispatcher
        return self.has_some and self.demand.wanted(dispatcher.workers, dispatcher.taken(self)) > 0

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
                if not self._slots.unsure:
                    continue
                if self.holds_lease():
                    self._stir.set()  # the next portion of them
                    continue
                # The lease is over by our clock, or nearly: they are asked once it is renewed.
            except StoreUnavailable as error:
                self._late_until = monotonic() + LATE
                log.debug("exchange.unanswered", error=str(error))
            except SessionLost:
                pass  # renewal notices it too, drops the claims and opens a new session
            await asyncio.sleep(backoff.next())
            self._is_well = True  # as far as anybody knows
            self._stir.set()

    async def run_once(self) -> None:
        """One exchange; after any error the same settlements and slots go into another."""
        exchange = self._begin()
        if exchange is None:
            self._let_go()
            return
        finished = exchange.tell(may_reach=bool(exchange.running) and self._may_reach)
        names = [slot.name for slot in exchange.asking]
        try:
            crash_point("before_settle", finished)
            crash_point("before_claim", names)
            answer = await self._claims.exchange(finished, names)
            crash_point("after_settle", finished)
            crash_point("after_claim", answer.claims)
        except BaseException:
            self._end(exchange)
            self.demand.failed(exchange.asked)
            self._take_back(exchange)
            raise
        self._end(exchange)
        self._is_well = True
        measures = self._dispatcher.measures
        written = [answer.written(each) for each in finished] if answer.crowded_out else finished
        count_exchange(measures, written, answer.refused, answer.claims, answer.further.values())
        measures.superseded += answer.superseded
        for advance in answer.crowded_out:
            report_crowded_out(advance)
        for settlement in one_by_one(answer.refused):
            report_lost(self._dispatcher.measures, settlement.claim)
        self._steer_runs(exchange, answer)
        self._take(exchange, finished, answer)

    @property
    def _may_reach(self) -> bool:
        """Whether runs may have more than they were given; what other stores have goes first."""
        dispatcher = self._dispatcher
        return dispatcher.may_claim and self.holds_lease() and dispatcher.granted(self, 1) > 0

    def _steer_runs(self, exchange: Exchange, answer: Answer) -> None:
        """Some have more now.

        Those that others wait for end with the task that runs; those that are lost, at once.
        """
        lost = {each.claim.slot for each in answer.refused if isinstance(each, Proceed)}
        for slot in exchange.running:
            if slot.run is not None and slot.name in answer.further:
                slot.run.reach(answer.further[slot.name])
            if slot.run is not None and slot.name in answer.ending | lost:
                slot.run.is_ending = True
            if slot.name in lost and slot.claim is not None and slot.lose is not None:
                slot.lose()

    def _begin(self) -> Exchange | None:
        """Choose what goes with the next exchange; ``None`` where there is nothing."""
        slots, dispatcher, demand = self._slots, self._dispatcher, self.demand
        workers, taken, due = dispatcher.workers, dispatcher.taken(self), len(slots.due)
        share = demand.share(dispatcher.held + due + demand.wanted(workers, taken))
        freed = min(share, due)
        may_ask, wanted = self.holds_lease(), 0
        if dispatcher.may_claim and may_ask:
            wanted = dispatcher.granted(self, demand.wanted(workers, taken, freed))
        if not wanted and self._gathers(freed, share):
            freed = 0
        settling = slots.take_due(freed)
        if settling and slots.due:
            self._stir.set()  # the rest goes with another exchange
        # At a stop what may be claimed unawares is found out, and released.
        asking = slots.choose(settling, min(share, wanted), demand.portion) if may_ask else []
        running = slots.take_running(monotonic() - PACE)
        if slots.running:
            self._tell_soon()
        if not settling and not asking and not running:
            if len(dispatcher.sources) > 1:
                dispatcher.make_room()
            return None
        return self._set_out(settling, asking, demand.ask(len(asking), len(settling)), running)

    def _gathers(self, due: int, share: int) -> bool:
        """Whether what is due waits for the exchange that is under way, and for more.

        A store alone fills its exchanges by itself.
        """
        dispatcher = self._dispatcher
        is_one_of_several = (
            len(dispatcher.sources) > 1 and dispatcher.may_claim and dispatcher.held > self.held
        )
        return is_one_of_several and bool(self._under_way.exchanges) and due < share

    def _take_back(self, exchange: Exchange) -> None:
        """After an error: all of it goes into another exchange, unless its session is over."""
        self._is_well = False
        if exchange.slots is self._slots:
            self._slots.turn_back(exchange)
        else:
            self._drop(exchange.settling)
        self.wake()
        self._let_go()
        self._dispatcher.make_room(self)

    def _let_go(self) -> None:
        """At a stop: what had to be found out may be so no more, without the lease or session."""
        if not self._dispatcher.may_claim:
            self._dispatcher.answered(self, is_short=False)

    def _take(self, exchange: Exchange, finished: Sequence[Settlement], answer: Answer) -> None:
        """Give claims to the dispatcher, and learn from them."""
        dispatcher, demand, came = self._dispatcher, self.demand, len(answer.claims)
        slots = self._arrive(exchange, answer.claims)
        if exchange.slots is self._slots:
            seconds = monotonic() - exchange.began
            largest = max([claim.bytes for claim in answer.claims], default=0)
            tasks = came + sum([len(claim.run) for claim in answer.claims])
            demand.answered(
                exchange.asked, came, dispatcher.workers, seconds, largest=largest, tasks=tasks
            )
            if answer.beside_suspect:
                # It may end this process again: as few as can be should go with it.
                demand.refrain()
            if slots:
                self._advance(answer.claims)
                self._deliver(exchange, slots)
        if any(claim.task.crashes for claim in (*answer.claims, *(s.claim for s in finished))):
            self.wake()  # a suspect comes alone, and behind the end of one there may be the next
        elif demand.goes_on(exchange.asked, came, dispatcher.workers, dispatcher.taken(self)):
            self._stir.set()
        if self._slots.due:
            self._stir.set()
        is_short = came < exchange.asked.number
        dispatcher.answered(self, is_short=is_short)
        if not is_short and len(dispatcher.sources) > 1:
            dispatcher.make_room()  # who is behind now may go on

    def _deliver(self, exchange: Exchange, slots: Sequence[Slot]) -> None:
        held_back = self._held_back(exchange, slots)
        if len(held_back) < len(slots):
            self._dispatcher.deliver([slot for slot in slots if slot not in held_back])
        elif not self._dispatcher.may_claim or not self.holds_lease():
            held_back[:0] = self._dispatcher.withdraw(self)
        for slot in held_back:
            self.end(slot, Release(slot.held))
