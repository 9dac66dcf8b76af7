"""A pool's claims of one store sit in slots.

A slot's checkpoint in the store lies under its name, and holds one claim at a time. There are as
many as the pool has workers, and some more for claims that are made ahead. A slot is in one place
at a time: free, claimed (its claim is in a worker's hands, or ready for one), due (something is to
be settled), unsure (a claim may have been made for it), or on its way with an exchange.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from groupflow.flow.demand import AT_ONCE, Asked, Demand
from groupflow.flow.run import Run
from groupflow.store.given import Claim
from groupflow.store.settlements import FREED, Settlement

RUN_FOR = 4.0  # seconds that a run goes on at most: half of a lease, as that is by default


class Source(Protocol):
    """Where a dispatcher's claims come from: the exchanges with one store."""

    demand: Demand
    holds_lease: Callable[[], bool]
    position: float  # how far it has got: of those with something, the hindmost goes first

    @property
    def has_some(self) -> bool:
        """Whether there may be something in it to claim."""

    @property
    def wants(self) -> bool:
        """The same, and whether there is room for that."""

    @property
    def has_asked(self) -> bool:
        """Whether claims are asked for, without an answer yet."""

    @property
    def waits(self) -> bool:
        """Whether there may be something in it, and it could ask, and has not asked for any yet."""

    @property
    def held(self) -> int:
        """How many claims are in workers' hands, ready for them, or asked for."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits to be settled or found out, there or on its way."""

    def wake(self) -> None:
        """Something may be claimable now."""

    def stir(self) -> None:
        """There may be room for more claims, or something to be settled."""

    async def settle(
        self, slot: Slot, settlement: Settlement | None, *, works_on: bool, hops: bool
    ) -> bool:
        """A slot's task has ended; whether the slot holds the next one of its run, or its group.

        Args:
            slot: whose claim that was of.
            settlement: of it; ``None`` where it was lost.
            works_on: whether its worker goes on.
            hops: whether nothing lies ready that could go before the next one of its group.
        """

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        """A slot's claim has ended, by a settlement, or since it was lost."""


@dataclass(slots=True, eq=False)
class Slot:
    """Room for one claim."""

    name: str  # unique within the daemon and store
    source: Source
    claim: Claim | None = None  # what it holds, as far as workers are concerned
    # What is to be settled first. It travels in the same exchange as the slot's next claim, or in
    # an earlier one: a slot whose last claim isn't settled yet would be given that one again.
    finished: Settlement | None = None
    is_unsure: bool = False  # a claim was asked for it and the reply was lost: it may hold one
    stays: bool = False  # its claim is no run, and of a group that was settled with it
    run: Run | None = None  # that its claim is of, where that has more tasks than one
    lose: Callable[[], None] | None = None  # has its worker stop: the claim is somebody else's

    @property
    def held(self) -> Claim:
        """Its claim; only for whoever has the slot in hand."""
        assert self.claim is not None  # noqa: S101
        return self.claim

    def go_on(self) -> None:
        """The task of its run that it holds is done: it holds the next one."""
        assert self.run is not None  # noqa: S101
        self.claim = self.run.next(self.held)


def is_of(slot: Slot, groups: Set[str] | None) -> bool:
    """Whether a slot's claim is of one of these groups; none stands for all, and plain tasks."""
    return groups is None or slot.held.task.group in groups


class Slots:
    """All slots of one session; they are made when they are needed."""

    def __init__(self, source: Source, pool: str, run_for: float = RUN_FOR) -> None:
        """Slots of one pool's claims; a run of them goes on for so many seconds at most."""
        self._source = source
        self._pool = pool
        self._run_for = run_for
        self.claimed = 0  # claims that are in workers' hands or ready for them
        self.due: deque[Slot] = deque()  # those that wait with something to settle
        self.unsure: list[Slot] = []  # those that may hold a claim which nobody knows of
        # whose runs go on, and have something to tell, since when (monotonic)
        self.running: dict[Slot, float] = {}
        self._all: dict[str, Slot] = {}
        self._free: deque[Slot] = deque()
        self._doubted = 0.0  # when (monotonic) the store was last found to have lost settles, maybe

    def has(self, slot: Slot) -> bool:
        """Whether it is of this session."""
        return self._all.get(slot.name) is slot

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        """A claim has ended; what is to be settled is due."""
        slot.claim, slot.finished = None, settlement
        self.claimed -= 1
        self.running.pop(slot, None)
        if slot.run is None or not slot.run.is_travelling:  # else once that has come back
            self._put(slot)

    def go_on(self, slot: Slot) -> None:
        """A run goes on with its next task."""
        slot.go_on()
        self.running.setdefault(slot, monotonic())

    def take_running(self, since: float) -> list[Slot]:
        """Runs that have had something to tell since then; they tell it with an exchange now."""
        found: list[Slot] = []
        tasks = 0
        for slot, at in self.running.items():
            if slot.run is None or slot.run.is_travelling or at > since or tasks >= AT_ONCE:
                continue
            tasks += slot.run.size
            found.append(slot)
        for slot in found:
            del self.running[slot]
        return found

    def come_back(self, slot: Slot, *, arrived: bool) -> None:
        """An exchange has ended that told of a run which goes on, or has ended since."""
        if slot.run is None:
            return
        slot.run.told(arrived=arrived)
        if slot.claim is None:
            self._put(slot)
        elif slot.run.has_news:
            self.running.setdefault(slot, monotonic())

    def _put(self, slot: Slot) -> None:
        """Where a slot without a claim belongs."""
        if slot.finished is not None:
            self.due.append(slot)
        else:
            slot.run = None
            self._free.append(slot)

    def lift(self, slot: Slot, settlement: Settlement) -> list[Slot]:
        """A claim has ended, and its slot goes with an exchange of its own at once."""
        slot.claim, slot.finished = None, settlement
        self.claimed -= 1
        return [slot]

    def take_due(self, most: int) -> list[Slot]:
        """Those that have something to settle, the longest due first; they are on their way now."""
        found: list[Slot] = []
        tasks = freed = 0
        while self.due and len(found) < most and tasks < AT_ONCE and freed < FREED:
            slot = self.due.popleft()
            tasks += 1 if slot.run is None else slot.run.size
            if slot.finished is not None:
                freed += slot.finished.claim.apart or slot.finished.claim.bytes
            found.append(slot)
        return found

    def choose(self, settling: Sequence[Slot], wanted: int, most: int = AT_ONCE) -> list[Slot]:
        """Whom to ask a claim for; they are on their way now.

        First those that are unsure, then free ones, the longest free first, then those that are
        about to be settled. So each slot is asked every now and then, and a claim comes to light
        that the store holds under it and nobody knows of (a Redis that lost its last second, a call
        that ran late).

        Args:
            settling: what `take_due` gave.
            wanted: how many claims are wanted; unsure ones are asked for beyond that.
            most: how many may be asked for.
        """
        wanted = min(wanted, most)
        chosen = [slot for slot in settling if slot.is_unsure][:most]
        room = most - len(chosen)
        chosen += self.unsure[:room]
        del self.unsure[:room]
        while len(chosen) < wanted and self._free:
            chosen.append(self._free.popleft())
        if len(chosen) < wanted:
            chosen += [slot for slot in settling if not slot.is_unsure][: wanted - len(chosen)]
        while len(chosen) < wanted:
            chosen.append(self._make())
        return chosen

    def doubt(self) -> None:
        """What was settled last may be lost, so a free slot may hold its last claim again."""
        self._doubted = monotonic()
        for slot in self._free:
            slot.is_unsure = True
        self.unsure += self._free
        self._free.clear()

    def end_runs(self, groups: Set[str] | None) -> None:
        """Each run of these groups, or of all, ends with the task that runs."""
        for slot in self._all.values():
            if slot.run and slot.claim and is_of(slot, groups):
                slot.run.is_ending = True

    def _make(self) -> Slot:
        slot = Slot(f"{self._pool}-{len(self._all)}", self._source)
        self._all[slot.name] = slot
        return slot

    def arrive(self, exchange: Exchange, claims: Sequence[Claim]) -> list[Slot]:
        """What was due is settled. Returns the slots that hold the new claims."""
        settled = {slot.finished.claim.task.group for slot in exchange.settling if slot.finished}
        for slot in exchange.settling:
            slot.finished = slot.run = None
        for slot in exchange.running:
            self.come_back(slot, arrived=True)
        for slot in exchange.asking:
            slot.is_unsure = False
        if exchange.began < self._doubted:  # it may have been answered before
            for slot in (*exchange.settling, *exchange.asking):
                slot.is_unsure = True
        held = [self._all[claim.slot] for claim in claims]
        for slot, claim in zip(held, claims, strict=True):
            slot.claim = claim
            group = claim.task.group
            slot.stays = group is not None and group in settled and not claim.run
            slot.run = Run(claim.run, self._run_for) if claim.run else None
        self.claimed += len(claims)
        for slot in dict.fromkeys((*exchange.settling, *exchange.asking)):
            if slot.claim is None:
                (self.unsure if slot.is_unsure else self._free).append(slot)
        return held

    def turn_back(self, exchange: Exchange) -> None:
        """It got no answer, and may have run."""
        for slot in exchange.asking:
            slot.is_unsure = True
        self.due.extendleft(reversed(exchange.settling))
        for slot in exchange.running:
            self.come_back(slot, arrived=False)
        self.unsure += [slot for slot in exchange.asking if slot.finished is None]


@dataclass(slots=True, eq=False)
class Exchange:
    """One round trip on its way."""

    slots: Slots  # of the session in which it began
    settling: list[Slot]  # whose claims it settles
    asking: list[Slot]  # for whom it claims
    asked: Asked  # how many that are, and why
    began: float  # when (monotonic)
    running: Sequence[Slot] = ()  # whose runs tell what of them is done, and go on
    # Groups that somebody has held back since it began; none: all of them.
    held_back: Set[str] | None = frozenset()

    def holds_back(self, slot: Slot) -> bool:
        """Whether what it brought for a slot may not begin."""
        return is_of(slot, self.held_back)

    def tell(self, *, may_reach: bool = False) -> list[Settlement]:
        """What it has to write; runs that go on may ask for more."""
        found: list[Settlement] = []
        for slot in self.settling:
            if slot.finished is not None:
                found += slot.run.end(slot.finished) if slot.run else (slot.finished,)
        for slot in self.running:
            found += slot.run.tell(slot.held, may_reach=may_reach) if slot.run else ()
        return found


class UnderWay:
    """The exchanges of one pool with one store that have no answer yet."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.asked = 0  # for how many claims they ask, together

    def begin(self, exchange: Exchange) -> None:
        """One sets out."""
        self.exchanges.append(exchange)
        self.asked += exchange.asked.number

    def hold_back(self, groups: Set[str] | None) -> None:
        """What they bring of these groups, or of all, may not begin."""
        for each in self.exchanges:
            before = each.held_back
            each.held_back = None if groups is None or before is None else before | groups

    def end(self, exchange: Exchange) -> None:
        """One has come back, or failed."""
        self.exchanges.remove(exchange)
        self.asked -= exchange.asked.number

    def seconds(self, now: float, extended: float) -> float:
        """How long the oldest has waited since it was last given more time (both monotonic)."""
        began = min((each.began for each in tuple(self.exchanges)), default=now)
        return max(0.0, now - max(began, extended))
