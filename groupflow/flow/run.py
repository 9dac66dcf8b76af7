"""A run: tasks of one group under one lock, which one worker runs one after another.

The next one begins when the one before has ended well here, though the store may not know of that
yet. What it isn't known to know is told it in order and as a whole, so that no task of a run is
ever settled ahead of one in front of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic

from groupflow.store.given import Claim, Rest
from groupflow.store.settlements import Complete, Proceed, Settlement


class Run:
    """What is left of one, and what of it is to be told.

    Attributes:
        is_ending: whether it is to end with the task that runs.
        is_travelling: whether an exchange tells some of it just now.
        seconds: that its attempts took so far.
    """

    def __init__(self, rest: Rest, seconds: float) -> None:
        """The rest behind its first task, where there is one; so many seconds are its most."""
        self.is_ending = False
        self.is_travelling = False
        self.seconds = 0.0
        self._rest: Sequence[Claim] = rest  # read one by one: see `given.Rest`
        self._further = deque[Rest]()  # behind that
        self._size = len(rest) + 1
        self._last = rest.last_element  # of the last task that it has
        self._next = 0  # place there
        self._read: Claim | None = None  # what stands there, once that is read
        self._until = monotonic() + seconds
        self._done: list[Complete] = []
        self._told = 0  # of these, travelling

    @property
    def goes_on(self) -> bool:
        """Whether another task of it may begin."""
        return self._behind > 0 and self._may_go_on

    @property
    def _may_go_on(self) -> bool:
        return not self.is_ending and monotonic() < self._until

    @property
    def _behind(self) -> int:
        return len(self._rest) - self._next + sum(map(len, self._further))

    @property
    def rest(self) -> Sequence[Claim]:
        """What is left of it behind the task that runs, in order; all of it is read."""
        found = list(self._rest[self._next :])
        while self._further:
            found += self._further.popleft()
        self._rest, self._next = found, 0
        return found

    @property
    def has_news(self) -> bool:
        """Whether some of it has ended that the store isn't known to know."""
        return bool(self._done)

    @property
    def size(self) -> int:
        """How many tasks there are to tell of, at most."""
        return len(self._done) + 1

    def next(self, done: Claim) -> Claim:
        """One is done: the next one."""
        self._done.append(Complete(done))
        claim = self._read or self._look()
        self._next, self._read = self._next + 1, None
        return claim

    def _look(self) -> Claim:
        if self._next == len(self._rest):
            self._rest, self._next = self._further.popleft(), 0
        return self._rest[self._next]

    def reach(self, further: Rest) -> None:
        """It has more, behind what it has."""
        self._further.append(further)
        self._last = further.last_element

    def tell(self, claim: Claim, *, may_reach: bool = False) -> list[Settlement]:
        """What an exchange tells while `claim` runs; `told` says how that went.

        Where it may reach further, and half of it is over, it asks for as much as it once was.
        """
        self.is_travelling, self._told = True, len(self._done)
        behind = self._behind
        if behind:  # so that nobody waits for it between two handlers
            self._read = self._read or self._look()
        more = self._size - 1 - behind if may_reach and self._may_go_on else 0
        if 2 * more < self._size:
            return [Proceed(tuple(self._done), claim)]
        last = self._last if behind else claim.element
        return [Proceed(tuple(self._done), claim, more, behind, last)]

    def told(self, *, arrived: bool) -> None:
        """An exchange has ended."""
        if arrived:
            del self._done[: self._told]
        self.is_travelling, self._told = False, 0

    def end(self, settlement: Settlement) -> list[Settlement]:
        """What an exchange tells at its end; once more, if that fails."""
        if isinstance(settlement, Complete):
            return [Proceed((*self._done, settlement), None)]
        if self._done:
            return [Proceed(tuple(self._done), settlement.claim), settlement]
        return [settlement]
