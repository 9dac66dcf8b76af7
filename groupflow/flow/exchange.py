"""One round trip settles everything finished and claims for everybody idle.

Each worker hands in what it finished and takes its next claim; whatever comes while exchanges with
the store are under way gathers for the next one. So the number of round trips depends on how long
one takes, not on how many workers there are.

Where several stores serve a pool, what travels with one of them has to be as much at a time as if
it were alone, or each costs what all of them should: so a store asks for nothing until there is
room for a piece (`Hall.granted`), and what little there is to settle waits for the exchange that is
under way (`_gathers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import SessionLost, SessionReplaced, StoreUnavailable
from groupflow.crashpoints import crash_point
from groupflow.flow.counting import count_exchange
from groupflow.flow.demand import Asked, Demand
from groupflow.flow.hall import Hall, Slot
from groupflow.flow.slots import Exchange, Slots
from groupflow.store.claims import Answer, Claims
from groupflow.store.scripts import Order
from groupflow.store.settlements import Claim, Complete, Release, Settlement

UNDER_WAY = 4  # exchanges at a time
FEW = 2  # claims in play: as many don't wait for each other; more cost less in one exchange

log = structlog.get_logger("groupflow.exchange")


class Exchanger:
    """The exchanges of one pool with one store."""

    def __init__(
        self,
        hall: Hall,
        claims: Claims,
        holds_lease: Callable[[], bool] = lambda: True,
        order: Order = "oldest",
    ) -> None:
        """Serves a hall from here on, with its pool's claims in one store.

        By `order` room is shared with other stores: the one whose claims are the oldest goes first,
        or the one that has had the fewest since it last had none.
        """
        self.pool = claims.pool
        self.position = 0.0
        self._is_fair = order != "oldest"
        # Whether that store's lease still runs by our own clock. A claim that was on its way while
        # this process was frozen is not begun: others may have gone on without it.
        self.holds_lease = holds_lease
        self.demand = Demand()
        self._hall = hall
        self._claims = claims
        self._slots = Slots(self, self.pool)
        self._under_way: list[Exchange] = []
        self._asked = 0  # for how many claims those ask, together
        self._is_well = True  # the last exchange was answered
        self._stir = asyncio.Event()
        self._next = asyncio.Lock()
        self._session_open = asyncio.Event()
        self._session_open.set()
        hall.sources.append(self)

    def wake(self) -> None:
        """Something may be claimable now."""
        if self._is_fair and not self.has_some:  # what it didn't want then isn't made up for
            self.position = max(self.position, self._hall.hindmost)
        self.demand.call()
        self._stir.set()

    def stir(self) -> None:
        """There may be room for more claims, or something to be settled."""
        self._stir.set()

    def may_hand_on(self, slot: Slot, settlement: Settlement | None) -> bool:
        """Whether the slot of a task that has ended may go on with the next one of its group.

        What other stores have goes before, where they are behind.
        """
        return (
            isinstance(settlement, Complete)
            and bool(settlement.claim.behind)
            and self._is_well
            and self.held <= FEW
            and self._slots.has(slot)
            and self._session_open.is_set()
            and self.holds_lease()
            and self._hall.granted(self, 1) > 0
        )

    async def hand_on(self, slot: Slot, settlement: Complete) -> bool:
        """Settle a slot's task, and claim the next one of its group for it.

        It is a small exchange of its own. Where it fails, what it should have settled goes with the
        next one.

        Returns:
            Whether the slot holds the next one.
        """
        lifted = self._slots.lift(slot, settlement)
        self._hall.held -= 1
        exchange = self._set_out(lifted, [slot], self.demand.ask_one())
        try:
            crash_point("before_settle")
            crash_point("before_claim")
            handed = await self._claims.hand_on(settlement)
            crash_point("after_settle")
            crash_point("after_claim", handed.claim)
        except BaseException as error:
            self._end(exchange)
            self._take_back(exchange)
            if isinstance(error, (StoreUnavailable, SessionLost, SessionReplaced)):
                return False  # the next exchange meets the same, and says so
            raise
        self._end(exchange)
        claims = [handed.claim] if handed.claim else []
        refused = [settlement] if handed.is_refused else []
        count_exchange(self._hall.measures, [settlement], refused, claims)
        if refused:
            self._report_lost(settlement.claim)
        held = self._arrive(exchange, claims)
        if held and self._hall.may_claim and self.holds_lease():
            self._advance(claims)
            return True
        for each in held:
            self.end(each, Release(each.held))
        self.wake()
        self._hall.answered(self, is_short=False)
        return False

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        """A slot's claim has ended, by a settlement, or since it was lost."""
        claim, is_ours = slot.held, self._slots.has(slot)
        if is_ours:
            self._slots.end(slot, settlement)
            self._hall.held -= 1
        if is_ours and settlement is not None:
            self._stir.set()
        else:  # a session that was lost took all of its claims along
            self._report_lost(claim)

    def close_session(self) -> None:
        """The session is lost: nothing can be settled or claimed until there is a new one."""
        self._session_open.clear()
        lost, self._slots = self._slots, Slots(self, self.pool)
        self._hall.held -= lost.claimed
        for slot in self._hall.withdraw(self):
            self._report_lost(slot.held)
        self._drop(lost.due)
        self._let_go()

    def open_session(self) -> None:
        """There is a new session."""
        self._session_open.set()
        self.wake()

    @property
    def wants(self) -> bool:
        """Whether there may be something in it to claim, and room for that."""
        hall = self._hall
        return self.has_some and self.demand.wanted(hall.workers, hall.taken(self)) > 0

    @property
    def has_asked(self) -> bool:
        """Whether claims are asked for, without an answer yet."""
        return self._asked > 0

    @property
    def waits(self) -> bool:
        """Whether there may be something in it, and it could ask, and has not asked for any yet."""
        if self._asked or not self.has_some or len(self._under_way) == UNDER_WAY:
            return False
        return self.demand.wanted(self._hall.workers, self.held) > 0

    @property
    def has_some(self) -> bool:
        """Whether there may be something in it to claim."""
        return (
            not self.demand.is_empty
            and self._is_well
            and self._session_open.is_set()
            and self._hall.may_claim
            and self.holds_lease()
        )

    @property
    def held(self) -> int:
        """How many claims are in workers' hands, ready for them, or asked for."""
        return self._slots.claimed + self._asked

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits to be settled or found out, here or on its way.

        What is unsure without the lease is for others to find: it is handed over.
        """
        if self._under_way or self._slots.due:
            return False
        return not (self._slots.unsure and self.holds_lease())

    def seconds_in_exchange(self) -> float:
        """How long the oldest exchange under way has waited; 0 where none is. From any thread.

        While its answer is coming, however slowly, it isn't waiting.
        """
        now = monotonic()
        began = min((each.began for each in tuple(self._under_way)), default=now)
        return max(0.0, now - max(began, self._claims.extended))

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
        finished = [slot.finished for slot in exchange.settling if slot.finished]
        names = [slot.name for slot in exchange.asking]
        try:
            crash_point("before_settle", finished)
            crash_point("before_claim", names)
            # Where there is no more to have, a group's next task is what its slot goes on with.
            is_hot = exchange.asked.was_empty and self.held <= FEW
            answer = await self._claims.exchange(finished, names, ahead=is_hot)
            crash_point("after_settle", finished)
            crash_point("after_claim", answer.claims)
        except BaseException:
            self._end(exchange)
            self.demand.failed(exchange.asked)
            self._take_back(exchange)
            raise
        self._end(exchange)
        self._is_well = True
        count_exchange(self._hall.measures, finished, answer.refused, answer.claims)
        for settlement in answer.refused:
            self._report_lost(settlement.claim)
        self._take(exchange, finished, answer)

    def _begin(self) -> Exchange | None:
        """Choose what goes with the next exchange; ``None`` where there is nothing."""
        slots, hall, demand = self._slots, self._hall, self.demand
        workers, taken, due = hall.workers, hall.taken(self), len(slots.due)
        share = demand.share(hall.held + due + demand.wanted(workers, taken))
        freed = min(share, due)
        may_ask, wanted = self.holds_lease(), 0
        if hall.may_claim and may_ask:
            wanted = hall.granted(self, demand.wanted(workers, taken, freed))
        if not wanted and self._gathers(freed, share):
            freed = 0
        settling = slots.take_due(freed)
        if settling and slots.due:
            self._stir.set()  # the rest goes with another exchange
        # At a stop what may be claimed unawares is found out, and released.
        asking = slots.choose(settling, min(share, wanted), demand.portion) if may_ask else []
        if not settling and not asking:
            if len(hall.sources) > 1:
                hall.make_room()
            return None
        return self._set_out(settling, asking, demand.ask(len(asking), len(settling)))

    def _set_out(self, settling: list[Slot], asking: list[Slot], asked: Asked) -> Exchange:
        hall = self._hall
        exchange = Exchange(self._slots, settling, asking, asked, monotonic())
        self._under_way.append(exchange)
        self._count(asked.number)
        if len(hall.sources) > 1:
            hall.make_room()
        return exchange

    def _gathers(self, due: int, share: int) -> bool:
        """Whether what is due waits for the exchange that is under way, and for more.

        A store alone fills its exchanges by itself.
        """
        hall = self._hall
        is_one_of_several = len(hall.sources) > 1 and hall.may_claim and hall.held > self.held
        return is_one_of_several and bool(self._under_way) and due < share

    def _count(self, asked: int) -> None:
        """So many more claims are asked for, or fewer."""
        self._asked += asked
        self._hall.held += asked
        if self._is_fair:
            self.position += asked

    def _end(self, exchange: Exchange) -> None:
        self._under_way.remove(exchange)
        self._count(-exchange.asked.number)

    def _take_back(self, exchange: Exchange) -> None:
        """After an error: all of it goes into another exchange, unless its session is over."""
        self._is_well = False
        if exchange.slots is self._slots:
            self._slots.turn_back(exchange)
        else:
            self._drop(exchange.settling)
        self.wake()
        self._let_go()
        self._hall.make_room(self)

    def _let_go(self) -> None:
        """At a stop: what had to be found out may be so no more, without the lease or session."""
        if not self._hall.may_claim:
            self._hall.answered(self, is_short=False)

    def _take(self, exchange: Exchange, finished: Sequence[Settlement], answer: Answer) -> None:
        """Give claims to the hall, and learn from them."""
        hall, demand, came = self._hall, self.demand, len(answer.claims)
        slots = self._arrive(exchange, answer.claims)
        if exchange.slots is self._slots:
            seconds = monotonic() - exchange.began
            largest = max([len(claim.task.body) for claim in answer.claims], default=0)
            demand.answered(exchange.asked, came, hall.workers, seconds, largest)
            if answer.beside_suspect:
                # It may end this process again: as few as can be should go with it.
                demand.refrain()
            if slots:
                self._advance(answer.claims)
                self._deliver(slots)
        if any(claim.task.crashes for claim in (*answer.claims, *(s.claim for s in finished))):
            self.wake()  # a suspect comes alone, and behind the end of one there may be the next
        elif demand.goes_on(exchange.asked, came, hall.workers, hall.taken(self)):
            self._stir.set()
        if self._slots.due:
            self._stir.set()
        is_short = came < exchange.asked.number
        hall.answered(self, is_short=is_short)
        if not is_short and len(hall.sources) > 1:
            hall.make_room()  # who is behind now may go on

    def _arrive(self, exchange: Exchange, claims: Sequence[Claim]) -> list[Slot]:
        """The slots that hold the claims; none where the session went meanwhile."""
        if exchange.slots is self._slots:
            self._hall.held += len(claims)
            return self._slots.arrive(exchange, claims)
        for slot in exchange.settling:
            slot.finished = None
        for claim in claims:
            self._report_lost(claim)
        return []

    def _advance(self, claims: Sequence[Claim]) -> None:
        """Other stores may have what goes before the rest of this one."""
        if self._is_fair:
            self.position += len(claims)
        else:
            self.position = claims[-1].task.enqueued_at

    def _deliver(self, slots: list[Slot]) -> None:
        if self._hall.may_claim and self.holds_lease():
            self._hall.deliver(slots)
            return
        # A stop or the lease's end came while they were on their way.
        for slot in (*self._hall.withdraw(self), *slots):
            self.end(slot, Release(slot.held))

    def _drop(self, slots: Iterable[Slot]) -> None:
        """What they should have settled is somebody else's."""
        for slot in slots:
            if slot.finished is not None:
                self._report_lost(slot.finished.claim)
                slot.finished = None

    def _report_lost(self, claim: Claim) -> None:
        """A claim was lost: its task belongs to somebody else, and nothing was written."""
        self._hall.measures.lost += 1
        log.warning(
            "claim.lost",
            task=claim.task.id,
            group=claim.task.group,
            fence=claim.fence,
            slot=claim.slot,
        )
