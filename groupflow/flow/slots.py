"""A pool's claims of one partition sit in slots.

A slot's checkpoint in the store lies under its name, and holds one claim at a time. There is a slot
for each worker of the pool, and some for prefetched claims. A slot is in one state at a time: free,
claimed (a worker has its claim, or it is ready for one), due (something is to be settled), unsure
(a claim may have been made for it), or in flight with an exchange.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from groupflow.core.task import Task, take_progress
from groupflow.flow.prefetch import AT_ONCE, Asked, Prefetch
from groupflow.store.given import Claim, Rest
from groupflow.store.progress import Said
from groupflow.store.settlements import FREED, Complete, Proceed, Settlement, bytes_of

RUN_FOR = 4.0  # seconds that a run goes on at most: half of a lease, as that is by default
PACE = 0.0015  # seconds between two times that a run tells what it has done: most end sooner


class ClaimSource(Protocol):
    """Where a dispatcher's claims come from: the exchanges with one partition."""

    prefetch: Prefetch
    holds_lease: Callable[[], bool]
    position: float  # how far it has got: of sources with something, the lowest goes first
    # ids of tasks that are to be cancelled, and when (monotonic) that was heard, the oldest first:
    # none begins
    cancels: OrderedDict[str, float]

    @property
    def has_some(self) -> bool:
        """Whether it may have something to claim."""

    @property
    def has_asked(self) -> bool:
        """Whether claims are asked for, without an answer yet."""

    @property
    def waits(self) -> bool:
        """Whether it may have claims, and could ask for them, but hasn't asked yet."""

    @property
    def held(self) -> int:
        """How many claims there are with workers, ready for them, or asked for."""

    @property
    def is_settled(self) -> bool:
        """Whether no slot waits to be settled or found out, there or in flight."""

    def wake(self) -> None:
        """Something may be claimable now."""

    def stir(self) -> None:
        """There may be room for more claims, or something to be settled."""

    def settle(self, slot: Slot, settlement: Settlement | None, *, works_on: bool) -> bool:
        """A slot's task has ended. True if the slot goes on with the next one of its run.

        Args:
            slot: the one that held the task's claim.
            settlement: of that claim; ``None`` where it was lost.
            works_on: whether the slot's worker goes on.
        """

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        """A slot's claim has ended, by a settlement, or since it was lost."""


class GroupRun:
    """What is left of a run, and what of it is to be told.

    The next task begins when the one before is done here, though the store may not know that yet.
    Exchanges tell the store what it may not know, in order and as a whole. So no task of a run is
    ever settled ahead of one in front of it.

    Attributes:
        is_ending: whether it ends with the task that runs.
        is_travelling: whether an exchange telling of it is in flight.
        tells_at: when (monotonic) it next tells what it has done.
        seconds: that its attempts took so far.
    """

    def __init__(self, rest: Rest, seconds: float) -> None:
        """The tasks behind the first one; the run goes on for `seconds` at most."""
        self.is_ending = False
        self.is_travelling = False
        self.seconds = 0.0
        self._rest = rest  # read one by one: see `given.Rest`
        self._next = 0  # place in `_rest`
        self._read: Claim | None = None  # the claim there, once it is read
        now = monotonic()
        self._until, self.tells_at = now + seconds, now + PACE
        self._done: list[Complete] = []
        self._told = 0  # how many of these are in flight

    @property
    def goes_on(self) -> bool:
        """Whether its next task may begin."""
        is_over = self.is_ending or self._next == len(self._rest)
        return not is_over and monotonic() < self._until

    @property
    def rest(self) -> Sequence[Claim]:
        """The claims behind the task that runs, in order."""
        return self._rest[self._next :]

    @property
    def has_news(self) -> bool:
        """Whether tasks are done that the store may not know of."""
        return bool(self._done)

    @property
    def size(self) -> int:
        """How many tasks there are to tell, at most."""
        return len(self._done) + 1

    def next(self, done: Complete) -> Claim:
        """A task is done. Returns the next one's claim."""
        self._done.append(done)
        claim = self._read or self._rest[self._next]
        self._next, self._read = self._next + 1, None
        return claim

    def tell(self, claim: Claim) -> list[Settlement]:
        """What an exchange tells while `claim` runs; `told` says how that went."""
        self.is_travelling, self._told = True, len(self._done)
        self.tells_at = monotonic() + PACE
        if self._read is None and self._next < len(self._rest):
            # early: the worker mustn't wait for it between two handlers
            self._read = self._rest[self._next]
        return [Proceed(tuple(self._done), claim)]

    def told(self, *, arrived: bool) -> None:
        """The exchange has ended, with an answer if `arrived`."""
        if arrived:
            del self._done[: self._told]
        self.is_travelling, self._told = False, 0

    def end(self, settlement: Settlement) -> list[Settlement]:
        """What an exchange tells at the run's end; again, if that exchange fails."""
        if isinstance(settlement, Complete):
            return [Proceed((*self._done, settlement), None)]
        if self._done:
            return [Proceed(tuple(self._done), settlement.claim), settlement]
        return [settlement]


@dataclass(slots=True, eq=False)
class Slot:
    """Room for one claim."""

    name: str  # unique within the daemon and store
    source: ClaimSource
    claim: Claim | None = None  # what it holds, as far as workers are concerned
    # To be settled first. It travels in the same exchange as the slot's next claim, or in an
    # earlier one: the store would give a slot whose last claim isn't settled that claim again.
    finished: Settlement | None = None
    is_unsure: bool = False  # a claim was asked for it and the reply was lost: it may hold one
    run: GroupRun | None = None  # the run of its claim, where that has several tasks
    lose: Callable[[], None] | None = None  # stops its worker, when the claim is lost
    tasks: Sequence[Task] = ()  # those that a handler has, or had last; the first is its claim's

    @property
    def held(self) -> Claim:
        """Its claim; only for a slot that holds one."""
        assert self.claim is not None  # noqa: S101
        return self.claim

    def go_on(self, done: Complete) -> None:
        """The task that it holds is done: hold the next one of its run."""
        assert self.run is not None  # noqa: S101
        self.claim = self.run.next(done)


def is_of(slot: Slot, groups: Set[str] | None) -> bool:
    """Whether a slot's claim is of one of these groups; ``None``: of any, or plain."""
    return groups is None or slot.held.task.group in groups


class Slots:
    """All slots of one session, made when they are needed."""

    def __init__(self, source: ClaimSource, pool: str, run_for: float = RUN_FOR) -> None:
        """Slots of one pool's claims, whose runs go on for `run_for` seconds at most."""
        self._source = source
        self._pool = pool
        self._run_for = run_for
        self.claimed = 0  # claims that workers have or that are ready for them
        self.due: deque[Slot] = deque()  # those with something to settle
        self.unsure: list[Slot] = []  # those that may hold a claim unknown to this daemon
        # runs that go on and have something to tell, but not in an exchange in flight, by slot
        self.running: dict[Slot, GroupRun] = {}
        self._all: dict[str, Slot] = {}
        self._free: deque[Slot] = deque()
        self._doubted = 0.0  # when (monotonic) the store may last have lost settlements

    def has(self, slot: Slot) -> bool:
        """Whether a slot is of this session."""
        return self._all.get(slot.name) is slot

    def said(self) -> Iterator[Said]:
        """What handlers have said of their progress since this was last asked."""
        for slot in self._all.values():
            figures = [packed for task in slot.tasks if (packed := take_progress(task))]
            if figures:
                yield Said(slot.name, slot.tasks[0].fence, figures[-1])

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        """A claim has ended; what is to be settled is due."""
        slot.tasks = ()
        slot.claim, slot.finished = None, settlement
        self.claimed -= 1
        self.running.pop(slot, None)
        if slot.run is None or not slot.run.is_travelling:  # else once its exchange has ended
            self._put(slot)

    def go_on(self, slot: Slot, done: Complete) -> None:
        """A run goes on with its next task."""
        slot.go_on(done)
        if slot.run is not None and not slot.run.is_travelling:
            self.running[slot] = slot.run

    def take_running(self) -> list[Slot]:
        """Take the runs that tell now what they have done, for an exchange."""
        found: list[Slot] = []
        now, tasks = monotonic(), 0
        for slot, run in self.running.items():
            if run.tells_at > now or tasks >= AT_ONCE:
                continue
            tasks += run.size
            found.append(slot)
        for slot in found:
            del self.running[slot]
        return found

    def come_back(self, slot: Slot, *, arrived: bool) -> None:
        """An exchange that told of a run has ended; the run goes on, or has ended meanwhile."""
        if slot.run is None:
            return
        slot.run.told(arrived=arrived)
        if slot.claim is None:
            self._put(slot)
        elif slot.run.has_news:
            self.running[slot] = slot.run

    def _put(self, slot: Slot) -> None:
        """Put a slot without a claim where it belongs."""
        if slot.finished is not None:
            self.due.append(slot)
        else:
            slot.run = None
            self._free.append(slot)

    def take_due(self, most: int) -> list[Slot]:
        """Take slots with something to settle, the longest due first, for an exchange."""
        found: list[Slot] = []
        tasks = freed = 0
        while self.due and len(found) < most and tasks < AT_ONCE and freed < FREED:
            slot = self.due.popleft()
            tasks += 1 if slot.run is None else slot.run.size
            if slot.finished is not None:
                freed += bytes_of(slot.finished)
            found.append(slot)
        return found

    def choose(self, settling: Sequence[Slot], wanted: int, most: int = AT_ONCE) -> list[Slot]:
        """Take the slots that an exchange claims for.

        First the unsure ones, then the free ones, the longest free first, then those about to be
        settled. So each slot is asked from time to time. That finds a claim which the store holds
        under it unknown to this daemon (Redis lost its last second, a call ran late).

        Args:
            settling: what `take_due` gave.
            wanted: how many claims are wanted; unsure slots are asked beyond that.
            most: how many slots may be asked.
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
        """The last settlements may be lost, so a free slot may hold its last claim again."""
        self._doubted = monotonic()
        for slot in self._free:
            slot.is_unsure = True
        self.unsure += self._free
        self._free.clear()

    def end_runs(self, groups: Set[str] | None) -> None:
        """End each run of these groups, or (``None``) of all, with the task that runs."""
        for slot in self._all.values():
            if slot.run and slot.claim and is_of(slot, groups):
                slot.run.is_ending = True

    def _make(self) -> Slot:
        slot = Slot(f"{self._pool}-{len(self._all)}", self._source)
        self._all[slot.name] = slot
        return slot

    def arrive(self, exchange: Exchange, claims: Sequence[Claim]) -> list[Slot]:
        """An exchange was answered, and settled what was due.

        Returns:
            The slots that hold the new claims.
        """
        for slot in exchange.settling:
            slot.finished = slot.run = None
        for slot in exchange.running:
            self.come_back(slot, arrived=True)
        for slot in exchange.asking:
            slot.is_unsure = False
        if exchange.began < self._doubted:  # its answer may be from before the loss
            for slot in (*exchange.settling, *exchange.asking):
                slot.is_unsure = True
        held = [self._all[claim.slot] for claim in claims]
        for slot, claim in zip(held, claims, strict=True):
            slot.claim = claim
            slot.run = GroupRun(claim.run, self._run_for) if claim.run else None
        self.claimed += len(claims)
        for slot in dict.fromkeys((*exchange.settling, *exchange.asking)):
            if slot.claim is None:
                (self.unsure if slot.is_unsure else self._free).append(slot)
        return held

    def turn_back(self, exchange: Exchange) -> None:
        """An exchange got no answer, and may have run."""
        for slot in exchange.asking:
            slot.is_unsure = True
        self.due.extendleft(reversed(exchange.settling))
        for slot in exchange.running:
            self.come_back(slot, arrived=False)
        self.unsure += [slot for slot in exchange.asking if slot.finished is None]


@dataclass(slots=True, eq=False)
class Exchange:
    """One round trip in flight."""

    slots: Slots  # of the session in which it began
    settling: list[Slot]  # whose claims it settles
    asking: list[Slot]  # those that it claims for
    asked: Asked  # how many claims it asks for, and what was known then
    began: float  # when (monotonic)
    running: Sequence[Slot] = ()  # whose runs tell what they have done, and go on
    beyond: int = 0  # how many of its claims no worker waits for: they would be prefetched
    # Groups that a wake has held back since it began; None: all of them.
    held_back: Set[str] | None = frozenset()

    def hold_back(self, groups: Set[str] | None) -> None:
        """Let no claim that it brings of these groups, or (``None``) of any, begin."""
        before = self.held_back
        self.held_back = None if groups is None or before is None else before | groups

    def holds_back(self, slot: Slot) -> bool:
        """Whether the claim that it brought for a slot may not begin."""
        return is_of(slot, self.held_back)

    def tell(self) -> list[Settlement]:
        """The settlements that it carries."""
        found: list[Settlement] = []
        for slot in self.settling:
            if slot.finished is not None:
                found += slot.run.end(slot.finished) if slot.run else (slot.finished,)
        for slot in self.running:
            found += slot.run.tell(slot.held) if slot.run else ()
        return found
