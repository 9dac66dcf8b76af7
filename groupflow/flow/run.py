"""A run: tasks of one group under one lock, which one worker runs one after another.

The next task begins when the one before is done here, though the store may not know that yet.
Exchanges tell the store what it may not know, in order and as a whole. So no task of a run is ever
settled ahead of one in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from groupflow.store.given import Claim, Rest
from groupflow.store.settlements import Complete, Proceed, Settlement


class GroupRun:
    """What is left of a run, and what of it is to be told.

    Attributes:
        is_ending: whether it ends with the task that runs.
        is_travelling: whether an exchange telling of it is in flight.
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
        self._until = monotonic() + seconds
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

    def next(self, done: Claim) -> Claim:
        """A task is done. Returns the next one's claim."""
        self._done.append(Complete(done))
        claim = self._read or self._rest[self._next]
        self._next, self._read = self._next + 1, None
        return claim

    def tell(self, claim: Claim) -> list[Settlement]:
        """What an exchange tells while `claim` runs; `told` says how that went."""
        self.is_travelling, self._told = True, len(self._done)
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
