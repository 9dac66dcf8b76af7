"""Slots: the places that a pool has for claims, and what each of them is up to.

A slot's checkpoint in the store lies under its name, and holds one claim at a time. There are as
many as the pool has workers, and some more for claims that are made ahead. A slot is in one place
at a time: free, claimed (its claim is in a worker's hands, or ready for one), due (something is to
be settled), unsure (a claim may have been made for it), or on its way with an exchange.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from groupflow.store.settlements import Claim, Settlement


@dataclass(slots=True, eq=False)
class Slot:
    """Room for one claim.

    Attributes:
        name: unique within the daemon.
        claim: what it holds, as far as workers are concerned.
        finished: what is to be settled first. It travels in the same exchange as the slot's next
            claim, or in an earlier one: a slot whose last claim isn't settled yet would be given
            that one again.
        is_unsure: whether a claim was asked for it and the reply was lost: it may hold one.
    """

    name: str
    claim: Claim | None = None
    finished: Settlement | None = None
    is_unsure: bool = False


class Slots:
    """All slots of one pool; they are made when they are needed.

    Attributes:
        claimed: how many claims are in workers' hands or ready for them.
    """

    def __init__(self, pool: str) -> None:
        self.claimed = 0
        self._pool = pool
        self._all: dict[str, Slot] = {}
        self._free: deque[Slot] = deque()
        self._due: deque[Slot] = deque()
        self._unsure: list[Slot] = []

    @property
    def due(self) -> int:
        """How many wait with something to settle."""
        return len(self._due)

    @property
    def unsure(self) -> int:
        """How many wait that may hold a claim which nobody knows of."""
        return len(self._unsure)

    def end(self, claim: Claim, settlement: Settlement | None) -> bool:
        """A claim has ended; what is to be settled is due.

        Returns:
            Whether the claim was ours still: a session that was lost took all of its claims along.
        """
        slot = self._all[claim.slot]
        if slot.claim is not claim:
            return False
        slot.claim, slot.finished = None, settlement
        self.claimed -= 1
        if settlement is None:
            self._free.append(slot)
        else:
            self._due.append(slot)
        return True

    def has_settled(self, settlement: Settlement | None) -> bool:
        """Whether a settlement that was due is not any more."""
        return settlement is None or self._all[settlement.claim.slot].finished is not settlement

    def take_due(self, most: int) -> list[Slot]:
        """Those that have something to settle, the longest due first; they are on their way now."""
        if len(self._due) <= most:
            due = list(self._due)
            self._due.clear()
            return due
        return [self._due.popleft() for _ in range(most)]

    def choose(self, due: Sequence[Slot], wanted: int, most: int) -> list[Slot]:
        """Whom to ask a claim for; those that weren't on their way with `due` are now.

        First all that are unsure, then free ones, the longest free first, then those that are about
        to be settled. So each slot is asked every now and then, and a claim comes to light that the
        store holds under it and nobody knows of (a Redis that lost its last second, a call that ran
        late).

        Args:
            due: what `take_due` gave.
            wanted: how many claims are wanted.
            most: how many may be asked for, the unsure ones included.
        """
        chosen = [slot for slot in due if slot.is_unsure]
        room = most - len(chosen)
        chosen += self._unsure[:room]
        del self._unsure[:room]
        while len(chosen) < wanted and self._free:
            chosen.append(self._free.popleft())
        chosen += [slot for slot in due if not slot.is_unsure][: max(0, wanted - len(chosen))]
        while len(chosen) < wanted:
            chosen.append(self._make())
        return chosen

    def _make(self) -> Slot:
        slot = Slot(f"{self._pool}-{len(self._all)}")
        self._all[slot.name] = slot
        return slot

    def arrive(self, due: Sequence[Slot], asked: Sequence[Slot], claims: Sequence[Claim]) -> None:
        """An exchange was answered: what was due is settled, and these are the new claims."""
        for slot in due:
            slot.finished = None
        for slot in asked:
            slot.is_unsure = False
        for claim in claims:
            self._all[claim.slot].claim = claim
        self.claimed += len(claims)
        for slot in dict.fromkeys((*due, *asked)):
            if slot.claim is None:
                (self._unsure if slot.is_unsure else self._free).append(slot)

    def turn_back(self, due: Sequence[Slot], asked: Sequence[Slot]) -> None:
        """An exchange got no answer, and may have run."""
        for slot in asked:
            slot.is_unsure = True
        self._due.extendleft(reversed(due))
        self._unsure += [slot for slot in asked if slot.finished is None]

    def drop(self, due: Sequence[Slot], asked: Sequence[Slot]) -> list[Settlement]:
        """An exchange of a session that is over came back. Returns what was not settled."""
        travelled = dict.fromkeys((*due, *asked))
        lost = [slot.finished for slot in travelled if slot.finished is not None]
        for slot in travelled:
            slot.claim, slot.finished, slot.is_unsure = None, None, False
        self._free += travelled
        return lost

    def drop_all(self) -> list[Settlement]:
        """The session is over, and every claim somebody else's. Returns what was due.

        Slots that are on their way come back by `drop`.
        """
        held = [slot for slot in self._all.values() if slot.claim is not None]
        lost = self.drop([*self._due, *self._unsure], held)
        self.claimed = 0
        self._due.clear()
        self._unsure.clear()
        return lost
