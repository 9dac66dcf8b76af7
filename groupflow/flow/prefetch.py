"""How many claims to ask one partition for. Plain numbers: no store, no clock, no event loop.

Whether there are any: an exchange that got fewer claims than it asked for shows that there are no
more. From then on exchanges ask for no more claims than they settle, since a settled task frees at
most its own group. When anything else becomes claimable, `call` is called.

How many to prefetch: a worker that waits for the store between two tasks is idle for a round
trip. With quick handlers that is most of its time. With slow ones it is almost nothing, and a ready
claim keeps its group from workers elsewhere. So the daemon prefetches as many as workers begin
during one exchange, as far as their bodies fit into memory.

How many at once: after an exchange without an answer the next one asks for half as many, until one
comes through, however large the bodies and slow the connection. Where claims are of runs, each of
many tasks, fewer go together, as they wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

AT_ONCE = 500  # claims an exchange: bounds what one script does
PARTS = 2  # an exchange carries one part of the slots in play
RUNS = 64  # tasks of runs that come together
MOST = 256  # prefetched claims: when the daemon dies, other daemons take over all that are ready
SPARE = 2  # exchanges and handlers vary
FEW = 8  # claims, the least that `likely` is
LEAST = 1 / 16  # of an attempt: for a shorter exchange nothing is prefetched
PREFETCH_BYTES = 32 * 1024 * 1024  # of prefetched bodies, in a pool and partition
FADING = 0.8  # of the largest body, each time that claims come without one as large
_WEIGHT = 0.2  # of the latest exchange in both averages


@dataclass(frozen=True, slots=True)
class Asked:
    """What one exchange asks for, and what was known then."""

    number: int
    calls: int
    was_empty: bool


class Prefetch:
    """Learns from calls, attempts and answers."""

    def __init__(self) -> None:
        self.claims = 0  # claims to have ready or in flight, beside those that workers hold
        self.portion = AT_ONCE  # claims that one exchange may ask for, for now
        self._largest = 0.0  # bytes of the largest recent body
        self._carried = AT_ONCE  # slots that one exchange carries at most: fewer of runs
        self.likely = AT_ONCE  # claims that an exchange may bring, if it asks for so many
        self._calls = 0  # how often `call` was called
        self.is_empty = False  # the last exchange got less than it asked for, without a call since
        # The next claim is for a worker that waits: its type has a limit, so it is not prefetched.
        self.is_kept = False
        self._attempts = 0  # since the last answer; what they took together
        self._seconds = 0.0
        self._attempt = 0.0  # averages
        self._exchange = 0.0

    def call(self) -> None:
        """Something may be claimable now."""
        self._calls += 1
        self.is_empty = False

    def handled(self, seconds: float) -> None:
        """An attempt has ended after `seconds`."""
        self._attempts += 1
        self._seconds += seconds

    def wanted(self, workers: int, held: int, freed: int = 0) -> int:
        """How many claims there is room for.

        Args:
            workers: those that go on claiming.
            held: claims that workers have, that are ready for them, or that are asked for.
            freed: slots about to be settled.
        """
        room = workers + self.claims - held if workers else 0
        return max(0, min(room, freed) if self.is_empty else room)

    def share(self, in_play: int) -> int:
        """How many slots one exchange carries.

        Slots that travel together stay together, and their workers wait for each other. So half of
        those in play travel, while the store works on the other half.
        """
        return max(1, min(self._carried, -(-in_play // PARTS)))

    def ask(self, number: int, freed: int) -> Asked:
        """An exchange asks for `number` claims, and settles for `freed` slots."""
        is_cut = number == self.portion < freed  # then there may be more than what comes
        was_empty = self.is_empty and not is_cut
        if number < freed:
            # Some freed groups are left, and the exchanges in flight don't know of them.
            self.call()
        return Asked(number, self._calls, was_empty)

    def failed(self, asked: Asked) -> None:
        """An exchange got no answer: it may have asked for too many claims."""
        if asked.number:
            self.portion = max(1, min(self.portion, asked.number // 2))

    def answered(
        self,
        asked: Asked,
        came: int,
        workers: int,
        seconds: float,
        *,
        largest: int = 0,
        tasks: int = 0,
    ) -> None:
        """Learn from an answered exchange how many claims to prefetch.

        One that asked for nothing teaches nothing. To ask for a claim costs something, whether the
        store has one or not: so the number grows only while all claims asked for come.

        Args:
            asked: what `ask` gave.
            came: how many claims it brought.
            workers: those that go on claiming.
            seconds: that it took.
            largest: bytes of the largest body among the claims.
            tasks: of these claims; more than claims where these are of runs.
        """
        if not asked.number:
            return
        self.portion = min(AT_ONCE, self.portion + 1 + self.portion // 4)
        if came:
            # With fewer than two tasks a claim, runs need no lower limit.
            self._carried = max(1, RUNS * came // tasks) if tasks >= 2 * came else AT_ONCE
            self._largest = max(float(largest), self._largest * FADING)
        self.likely = max(FEW, SPARE * came)
        all_came = came == asked.number and not asked.was_empty
        most = SPARE * max(came, self.claims if all_came else 0)
        most = min(most, int(PREFETCH_BYTES / max(1.0, self._largest)))
        self.claims = min(self.claims, most)
        if not self._attempts:
            return
        attempt, self._attempts, self._seconds = self._seconds / self._attempts, 0, 0.0
        self._attempt += (attempt - self._attempt) * (_WEIGHT if self._attempt else 1.0)
        self._exchange += (seconds - self._exchange) * (_WEIGHT if self._exchange else 1.0)
        share = self._exchange / max(self._attempt, 1e-6)
        number = round(min(MOST, most, SPARE * workers * share)) if share > LEAST else 0
        # An exchange that claims fewer than it settles wakes every daemon: not for small changes.
        if number > self.claims or 2 * number < self.claims:
            self.claims = number

    def goes_on(self, asked: Asked, came: int, workers: int, held: int) -> bool:
        """Whether to ask again after an answer that brought `came` claims."""
        if not asked.number:
            return False
        if asked.calls != self._calls:
            return True  # the call that came since may have found no room to ask
        if came < asked.number:
            self.is_empty = True
        elif not asked.was_empty and self.wanted(workers, held):
            self.call()  # there may be more than one exchange carries
            return True
        return False

    def refrain(self) -> None:
        """Prefetch none until the next exchange."""
        self.claims = 0
