"""How many claims to make ahead of the workers: those that they begin during one exchange.

A worker that has to wait for the store between two tasks is idle for a round trip, and where
handlers are quick that is most of its time. Where they are slow it is next to nothing, and a claim
that lies ready keeps its group from workers elsewhere. So the number follows from what both take.
"""

from __future__ import annotations

MOST = 256  # whatever both take: all that lie ready have to be taken over when a daemon dies
SPARE = 2  # exchanges and handlers vary
LEAST = 1 / 16  # of an attempt: an exchange that takes less of a worker's time is none to save
_WEIGHT = 0.2  # of the latest exchange in both averages


class Ahead:
    """Learns from attempts and exchanges.

    Attributes:
        number: claims to have ready, or on their way, beside those that workers hold.
    """

    def __init__(self) -> None:
        self.number = 0
        self._attempts = 0
        self._seconds = 0.0
        self._attempt = 0.0
        self._exchange = 0.0

    def handled(self, seconds: float) -> None:
        """An attempt has ended, and took so long."""
        self._attempts += 1
        self._seconds += seconds

    def exchanged(self, seconds: float, workers: int, came: int, *, all_came: bool) -> None:
        """An exchange took so long, and brought so many claims.

        To ask for a claim costs something, whether the store has one or not: so the number grows as
        long as all come that are asked for.

        Args:
            seconds: that it took.
            workers: what the attempts since the last one ran on.
            came: how many claims it brought.
            all_came: whether it asked for as many as there is room for, and got them.
        """
        most = SPARE * max(came, self.number if all_came else 0)
        self.number = min(self.number, most)
        if not self._attempts:
            return
        attempt, self._attempts, self._seconds = self._seconds / self._attempts, 0, 0.0
        self._attempt += (attempt - self._attempt) * (_WEIGHT if self._attempt else 1.0)
        self._exchange += (seconds - self._exchange) * (_WEIGHT if self._exchange else 1.0)
        share = self._exchange / max(self._attempt, 1e-6)
        number = round(min(MOST, most, SPARE * workers * share)) if share > LEAST else 0
        # To claim for fewer than are settled has every daemon woken: so not for each small change.
        if number > self.number or 2 * number < self.number:
            self.number = number

    def refrain(self) -> None:
        """None until the next exchange."""
        self.number = 0
