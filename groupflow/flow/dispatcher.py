"""Hands claims to the workers of one pool, each once it has handed in its last one.

There is one dispatcher a pool, for all partitions. Each partition has exchanges of its own
(`exchange.py`), which ask here how much room there is, and bring slots that hold claims.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from groupflow.core.measures import PoolMeasures
from groupflow.crashpoints import crash_point
from groupflow.flow.prefetch import SPARE
from groupflow.flow.slots import ClaimSource, Slot, is_of
from groupflow.store.settlements import Release, Settlement

READY_FOR = 0.1  # seconds that a claim may be ready without being begun


class Worker(Protocol):
    """Whom a dispatcher hands claims to."""

    name: str  # unique within the pool

    def begin(self, slot: Slot) -> None:
        """Begin with the claim that a slot holds; `Dispatcher.hand_in` says that it has ended."""

    def go(self) -> None:
        """No more claims come, at all or for this worker, and what it handed in is settled."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A worker without a claim, and what it handed in last."""

    worker: Worker
    slot: Slot | None = None
    settlement: Settlement | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the store has what it handed in."""
        if self.slot is None or self.settlement is None:
            return True
        return self.slot.finished is not self.settlement


class Dispatcher:
    """Hands claims to idle workers."""

    def __init__(self, measures: PoolMeasures | None = None) -> None:
        self.measures = measures or PoolMeasures()
        self.sources: list[ClaimSource] = []  # one a partition; they add themselves
        self.may_claim = True  # `stop_claiming` has not been called
        self._ready: deque[tuple[Slot, float]] = deque()  # prefetched claims, and since when
        self._ready_timer: asyncio.TimerHandle | None = None
        self._idle: dict[str, _Waiting] = {}  # workers that wait for a claim, by name
        self._workers: set[str] = set()  # those that go on claiming
        self._retiring: set[str] = set()

    def join(self, worker: Worker) -> None:
        """A worker wants claims from here on."""
        self.wake()
        self._look(_Waiting(worker))

    def leave(self, worker: Worker) -> None:
        """A worker is gone: it counts no more, even if it was to be retired meanwhile."""
        self._idle.pop(worker.name, None)
        self._workers.discard(worker.name)
        self._retiring.discard(worker.name)

    def hand_in(self, worker: Worker, slot: Slot, settlement: Settlement | None) -> None:
        """A slot's task has ended: its worker begins another one, now or once there is one.

        It has the same slot where its run goes on; else one that is ready.

        Args:
            worker: whose task it was.
            slot: what it had.
            settlement: of that slot's claim; ``None`` where the claim was lost.
        """
        works_on = self.may_claim and worker.name not in self._retiring
        if slot.source.settle(slot, settlement, works_on=works_on):
            worker.begin(slot)
            return
        if settlement is None:
            self.wake()
        self._look(_Waiting(worker, slot, settlement))

    def _look(self, waiting: _Waiting) -> None:
        """Let a worker begin what is ready, or wait for it, or go."""
        name = waiting.worker.name
        if name in self._retiring:
            if waiting.is_settled:
                self._retiring.discard(name)
                waiting.worker.go()
                return
        elif self._ready:
            waiting.worker.begin(self._ready.popleft()[0])
            return
        elif not self.may_claim and self.is_settled:
            waiting.worker.go()
            return
        elif name not in self._workers:
            self._workers.add(name)
            self.make_room()
        self._idle[name] = waiting

    def wake(self) -> None:
        """Something may be claimable now."""
        for source in self.sources:
            source.wake()

    def stop_claiming(self) -> None:
        """Claim no more; still settle what is finished, and find out about unsure slots.

        Idle workers end once that is done.
        """
        self.may_claim = False
        self._hand_back()
        for source in self.sources:
            source.stir()
        crash_point("during_drain")
        self.answered(is_short=False)  # without a session, no exchange comes

    def retire(self, workers: Set[str]) -> None:
        """Claim no more for these workers, and for all others again.

        A busy worker ends its task first, an idle one ends at once.
        """
        called = (self._retiring | workers) & self._idle.keys()  # some may stay after all
        # Busy ones that stay after all; an idle one says so itself.
        self._workers |= self._retiring - workers - self._idle.keys()
        self._retiring = set(workers)
        self._workers -= workers
        self._call(called)

    def granted(self, source: ClaimSource, wanted: int) -> int:
        """How many claims a partition may ask for now, of those that it wants.

        Where others wait, the one with the lowest position asks first, once there is room for a
        piece. So claims of one partition come together, are handled and settled together.
        """
        if not wanted or len(self.sources) == 1:
            return wanted
        if source.has_asked and self._has_others(source):
            return 0  # it has its share, and its answer may take long
        first = self._next_waiting(beside=source)
        if first is None:
            return wanted
        wanted = min(wanted, source.prefetch.likely)
        # A partition that has nothing but what it frees never goes first.
        is_first = not source.prefetch.is_empty and source.position <= first.position
        return wanted if self._has_room(0 if is_first else wanted) else 0

    def make_room(self) -> None:
        """There may be room: stir the partition whose turn it is."""
        if self._has_room() and (first := self._next_waiting()) is not None:
            first.stir()

    def taken(self, source: ClaimSource) -> int:
        """How many claims a partition has to count as taken.

        It may prefetch as many claims as its own exchanges and bodies call for; all partitions
        together, as many as the largest of these numbers.
        """
        if len(self.sources) == 1:
            return source.held
        return max(source.held, self.held - self.prefetch + source.prefetch.claims)

    @property
    def held(self) -> int:
        """How many claims workers have, are ready for them, or are asked for."""
        return sum([source.held for source in self.sources])

    @property
    def waiting(self) -> int:
        """How many workers wait for claims that aren't asked for yet."""
        return max(0, self.workers - self.held)

    @property
    def prefetch(self) -> int:
        """How many claims all partitions together may prefetch.

        None while one of them keeps a claim for a worker that waits: no worker would come to.
        """
        if any(source.prefetch.is_kept for source in self.sources):
            return 0
        return max([source.prefetch.claims for source in self.sources])

    def _has_room(self, beside: int = 0) -> bool:
        """Whether fewer claims are ready, or coming, than workers begin during an exchange."""
        prefetch, workers = self.prefetch, self.workers
        return workers > 0 and workers + prefetch - self.held - beside >= max(1, prefetch // SPARE)

    def _has_others(self, source: ClaimSource) -> bool:
        """Whether another partition may have something to claim."""
        return any(each.has_some for each in self.sources if each is not source)

    def _next_waiting(self, beside: ClaimSource | None = None) -> ClaimSource | None:
        """Of the partitions that wait for room, the one with the lowest position."""
        waiting = [each for each in self.sources if each is not beside and each.waits]
        return min(waiting, key=lambda each: each.position, default=None)

    @property
    def lowest_position(self) -> float:
        """The lowest position of the partitions that may have something to claim."""
        return min((each.position for each in self.sources if each.has_some), default=0.0)

    @property
    def workers(self) -> int:
        """How many workers go on claiming."""
        return len(self._workers)

    @property
    def ready(self) -> int:
        """How many claims are ready."""
        return len(self._ready)

    @property
    def is_settled(self) -> bool:
        """Whether no slot waits to be settled or found out, here or in flight."""
        return all(source.is_settled for source in self.sources)

    # What exchanges bring:

    def deliver(self, slots: Sequence[Slot]) -> None:
        """Keep claims ready, and call a waiting worker for each."""
        now = monotonic()
        self._ready.extend([(slot, now) for slot in slots])
        if self._ready_timer is None:
            loop = asyncio.get_running_loop()
            self._ready_timer = loop.call_later(READY_FOR, self._look_at_ready)
        self._call_idle()

    def answered(self, *, is_short: bool) -> None:
        """A partition's exchange has ended: workers that waited for that may end.

        Where it got less than it asked for (`is_short`), other partitions have room.
        """
        if not self.may_claim and self.is_settled:
            crash_point("before_leave")
            self._call(self._idle.keys())
        elif self._retiring:
            self._call(self._retiring & self._idle.keys())
        if is_short:
            self.make_room()

    def withdraw(self, of: ClaimSource, groups: Set[str] | None = None) -> list[Slot]:
        """Take back ready claims of one partition, of these groups or (``None``) of all."""
        found, stays = list[Slot](), deque[tuple[Slot, float]]()
        for slot, since in self._ready:
            if slot.source is of and is_of(slot, groups):
                found.append(slot)
            else:
                stays.append((slot, since))
        self._ready = stays
        return found

    def _call_idle(self) -> None:
        """Let idle workers begin what is ready, the longest idle first."""
        for name in list(self._idle):
            if not self._ready:
                break
            self._look(self._idle.pop(name))

    def _call(self, workers: Iterable[str]) -> None:
        for name in list(workers):
            self._look(self._idle.pop(name))

    def _look_at_ready(self) -> None:
        """Release ready claims once they wait too long: other daemons may have idle workers."""
        self._ready_timer = None
        if not self._ready:
            return
        age = monotonic() - self._ready[0][1]
        if age < READY_FOR:
            loop = asyncio.get_running_loop()
            self._ready_timer = loop.call_later(READY_FOR - age, self._look_at_ready)
        else:
            for source in self.sources:
                source.prefetch.refrain()
            self._hand_back()

    def _hand_back(self) -> None:
        """Release the ready claims."""
        ready, self._ready = self._ready, deque()
        for slot, _ in ready:
            slot.source.end(slot, Release(slot.held))
