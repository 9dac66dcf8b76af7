"""How many claims to ask one store for. Plain numbers: no store, no clock, no event loop.

Whether it has any: an exchange that got less than it asked for says that there is nothing more.
From then on no more is asked for than is settled, since a task that is settled frees its own group
at most; of all else there is a call.

And how far ahead of the workers: one that has to wait for the store between two tasks is idle for a
round trip, and where handlers are quick that is most of its time. Where they are slow it is next to
nothing, and a claim that lies ready keeps its group from workers elsewhere. So as many are made
ahead as workers begin during one exchange, as far as their bodies fit into memory.

And how many at once: where no answer comes, the next exchange asks for half as many, so that at
last one comes through however large the bodies are and however slow the way is. And where claims
are of runs, each of which brings many tasks, fewer go together, as they wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

AT_ONCE = 500  # claims an exchange: bounds what one script does
PARTS = 2  # of what is in play: an exchange carries one of them
RUNS = 64  # tasks of runs that come together
MOST = 256  # ahead, whatever both take: all that lie ready are taken over when a daemon dies
SPARE = 2  # exchanges and handlers vary
FEW = 8  # claims, whatever came last
LEAST = 1 / 16  # of an attempt: an exchange that takes less of a worker's time is none to save
AHEAD_BYTES = 32 * 1024 * 1024  # of bodies ahead, in a pool and of one store
FADING = 0.8  # of the largest body, each time that claims come without one as large
_WEIGHT = 0.2  # of the latest exchange in both averages


@dataclass(frozen=True, slots=True)
class Asked:
    """What one exchange asks for, and what was known when it did."""

    number: int
    calls: int
    was_empty: bool


class Demand:
    """Learns from calls, attempts and answers."""

    def __init__(self) -> None:
        self.ahead = 0  # claims to have ready or on their way, beside those that workers hold
        self.portion = AT_ONCE  # claims that one exchange may ask for, for now
        self._largest = 0.0  # bytes of a body, of the latest
        self._carried = AT_ONCE  # slots that one exchange carries at most: fewer of runs
        self.likely = AT_ONCE  # claims that come, where so many are asked for
        self._calls = 0  # reasons to claim for all who are idle, ever
        self.is_empty = False  # the last claim got less than it asked for; nobody called since
        self._attempts = 0  # since the last answer; what they took together
        self._seconds = 0.0
        self._attempt = 0.0  # averages
        self._exchange = 0.0

    def call(self) -> None:
        """Something may be claimable now."""
        self._calls += 1
        self.is_empty = False

    def handled(self, seconds: float) -> None:
        """An attempt has ended, and took so long."""
        self._attempts += 1
        self._seconds += seconds

    def wanted(self, workers: int, held: int, freed: int = 0) -> int:
        """How many claims there is room for.

        Args:
            workers: that go on claiming.
            held: claims that they have, that lie ready for them, or that are asked for.
            freed: slots that are about to be settled.
        """
        room = workers + self.ahead - held if workers else 0
        return max(0, min(room, freed) if self.is_empty else room)

    def share(self, in_play: int) -> int:
        """How much one exchange carries.

        Slots that travel together stay together, and their workers wait for each other. So half of
        what is in play goes, while the store works on the other half.
        """
        return max(1, min(self._carried, -(-in_play // PARTS)))

    def ask(self, number: int, freed: int) -> Asked:
        """An exchange asks for so many claims, and settles for so many slots."""
        is_cut = number == self.portion < freed  # then there may be more behind what comes
        was_empty = self.is_empty and not is_cut
        if number < freed:
            # Some of what they free is left, and whoever has asked before doesn't know of it.
            self.call()
        return Asked(number, self._calls, was_empty)

    def ask_one(self) -> Asked:
        """A slot goes on with its group's next task: that is no word on what else there is."""
        return Asked(1, self._calls, self.is_empty)

    def failed(self, asked: Asked) -> None:
        """An exchange got no answer: its claims may have been too much for one."""
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
        """An exchange took so long and brought so many claims: learn how many to make ahead.

        One that asked for nothing tells nothing. To ask for a claim costs something, whether the
        store has one or not: so the number grows as long as all come that are asked for.

        Args:
            asked: what `ask` gave.
            came: how many claims.
            workers: that go on claiming.
            seconds: that it took.
            largest: bytes of the largest body among them.
            tasks: that they are of; more than claims where those are of runs.
        """
        if not asked.number:
            return
        self.portion = min(AT_ONCE, self.portion + 1 + self.portion // 4)
        if came:
            # Where most claims are of one task, they are no more than ever.
            self._carried = max(1, RUNS * came // tasks) if tasks >= 2 * came else AT_ONCE
            self._largest = max(float(largest), self._largest * FADING)
        self.likely = max(FEW, SPARE * came)
        all_came = came == asked.number and not asked.was_empty
        most = SPARE * max(came, self.ahead if all_came else 0)
        most = min(most, int(AHEAD_BYTES / max(1.0, self._largest)))
        self.ahead = min(self.ahead, most)
        if not self._attempts:
            return
        attempt, self._attempts, self._seconds = self._seconds / self._attempts, 0, 0.0
        self._attempt += (attempt - self._attempt) * (_WEIGHT if self._attempt else 1.0)
        self._exchange += (seconds - self._exchange) * (_WEIGHT if self._exchange else 1.0)
        share = self._exchange / max(self._attempt, 1e-6)
        number = round(min(MOST, most, SPARE * workers * share)) if share > LEAST else 0
        # To claim for fewer than are settled has every daemon woken: so not for each small change.
        if number > self.ahead or 2 * number < self.ahead:
            self.ahead = number

    def goes_on(self, asked: Asked, came: int, workers: int, held: int) -> bool:
        """Whether there is more to ask for behind an answer that brought so many claims."""
        if not asked.number:
            return False
        if asked.calls != self._calls:
            return True  # one that came since may have found no room to ask for anything
        if came < asked.number:
            self.is_empty = True
        elif not asked.was_empty and self.wanted(workers, held):
            self.call()  # there may be more than one exchange carries
            return True
        return False

    def refrain(self) -> None:
        """None ahead until the next exchange."""
        self.ahead = 0
