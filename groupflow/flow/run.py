"""A run: tasks of one group under one claim, which one worker runs one after another.

The next one begins when the one before has ended well here, though the store may not know of that
yet. What it isn't known to know is told it in order and as a whole, so that no task of a run is
ever settled ahead of one in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Proceed, Settlement


class Run:
    """What is left of one, and what of it is to be told.

    Attributes:
        is_ending: whether it is to end with the task that runs.
        is_travelling: whether an exchange tells some of it just now.
        seconds: that its attempts took so far.
    """

    def __init__(self, rest: Sequence[Claim], seconds: float) -> None:
        """The rest behind its first task; it goes on for so many seconds at most."""
        self.is_ending = False
        self.is_travelling = False
        self.seconds = 0.0
        self._rest = rest  # read one by one: see `given.Rest`
        self._next = 0  # place there
        self._read: Claim | None = None  # what stands there, once that is read
        self._until = monotonic() + seconds
        self._done: list[Complete] = []
        self._told = 0  # of these, travelling

    @property
    def goes_on(self) -> bool:
        """Whether another task of it may begin."""
        return self._next < len(self._rest) and not self.is_ending and monotonic() < self._until

    @property
    def rest(self) -> Sequence[Claim]:
        """What is left of it behind the task that runs, in order; all of it is read."""
        self._rest, self._next = list(self._rest[self._next :]), 0
        return self._rest

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
        claim = self._read or self._rest[self._next]
        self._next, self._read = self._next + 1, None
        return claim

    def tell(self, claim: Claim) -> list[Settlement]:
        """What an exchange tells while `claim` runs; `told` says how that went."""
        self.is_travelling, self._told = True, len(self._done)
        if self._next < len(self._rest):  # so that nobody waits for it between two handlers
            self._read = self._read or self._rest[self._next]
        return [Proceed(tuple(self._done), claim)]

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
