"""A pool's claims of one store sit in slots.

A slot's checkpoint in the store lies under its name, and holds one claim at a time. There are as
many as the pool has workers, and some more for claims that are made ahead. A slot is in one place
at a time: free, claimed (its claim is in a worker's hands, or ready for one), due (something is to
be settled), unsure (a claim may have been made for it), or on its way with an exchange.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from groupflow.flow.demand import AT_ONCE, Asked
from groupflow.flow.hall import Slot, Source
from groupflow.store.settlements import Claim, Settlement


class Slots:
    """All slots of one session; they are made when they are needed."""

    def __init__(self, source: Source, pool: str) -> None:
        self._source = source
        self._pool = pool
        self.claimed = 0  # claims that are in workers' hands or ready for them
        self.due: deque[Slot] = deque()  # those that wait with something to settle
        self.unsure: list[Slot] = []  # those that may hold a claim which nobody knows of
        self._all: dict[str, Slot] = {}
        self._free: deque[Slot] = deque()

    def has(self, slot: Slot) -> bool:
        """Whether it is of this session."""
        return self._all.get(slot.name) is slot

    def end(self, slot: Slot, settlement: Settlement | None) -> None:
        """A claim has ended; what is to be settled is due."""
        slot.claim, slot.finished = None, settlement
        self.claimed -= 1
        (self._free if settlement is None else self.due).append(slot)

    def lift(self, slot: Slot, settlement: Settlement) -> list[Slot]:
        """A claim has ended, and its slot goes with an exchange of its own at once."""
        slot.claim, slot.finished = None, settlement
        self.claimed -= 1
        return [slot]

    def take_due(self, most: int) -> list[Slot]:
        """Those that have something to settle, the longest due first; they are on their way now."""
        return [self.due.popleft() for _ in range(min(most, len(self.due)))]

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

    def _make(self) -> Slot:
        slot = Slot(f"{self._pool}-{len(self._all)}", self._source)
        self._all[slot.name] = slot
        return slot

    def arrive(self, exchange: Exchange, claims: Sequence[Claim]) -> list[Slot]:
        """What was due is settled. Returns the slots that hold the new claims."""
        for slot in exchange.settling:
            slot.finished = None
        for slot in exchange.asking:
            slot.is_unsure = False
        held = [self._all[claim.slot] for claim in claims]
        for slot, claim in zip(held, claims, strict=True):
            slot.claim = claim
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
        self.unsure += [slot for slot in exchange.asking if slot.finished is None]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One round trip on its way."""

    slots: Slots  # of the session in which it began
    settling: list[Slot]  # whose claims it settles
    asking: list[Slot]  # for whom it claims
    asked: Asked  # how many that are, and why
    began: float  # when (monotonic)
