"""Wrong tokens: each address waits longer for its next answer, and the log names it.

`WAITING` tokens wait at a time for each address. More are refused unread, right or wrong: else a
caller that sends a thousand guesses at once would learn the right one at once. Only an address that
showed the right token within `KNOWN` seconds is always read, even if another caller guesses from
there. The memory is bounded: the address that has been quiet longest is forgotten.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from time import monotonic

import structlog

log = structlog.get_logger("groupflow.http")

FIRST_WAIT = 0.25  # seconds for the first wrong token; doubled with each
LONGEST_WAIT = 5.0  # seconds
FORGOTTEN = 300.0  # seconds of quiet after which an address starts over
REMEMBERED = 1024  # addresses
WAITING = 4  # answers at a time to one address
WAITING_IN_ALL = 128
KNOWN = 3600.0  # seconds for which an address that showed the right token is always read
LINES = 60  # in the log within a minute, about all addresses
_MINUTE = 60.0
SAID_AGAIN = 10.0  # seconds between two lines about one address, beyond its first three
_SAID_AT_ONCE = 3


class _Tries:
    __slots__ = ("last", "number", "said")

    def __init__(self) -> None:
        self.number = 0
        self.last = self.said = float("-inf")


class Patience:
    """How long each address waits."""

    def __init__(self) -> None:
        self._tries: OrderedDict[str, _Tries] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        self._known: OrderedDict[str, float] = OrderedDict()
        self._lines, self._minute = 0, float("-inf")

    def is_read(self, peer: str) -> bool:
        """Whether a token from this address is read now."""
        if monotonic() - self._known.get(peer, float("-inf")) < KNOWN:
            return True
        return self._waiting.get(peer, 0) < WAITING and self._waiting.total() < WAITING_IN_ALL

    async def wrong(self, peer: str) -> bool:
        """Take note of a wrong token from an address, and wait.

        Returns False where too many wait already: the request is to be refused at once.
        """
        wait = self.noted(peer)
        if self._waiting.get(peer, 0) >= WAITING or self._waiting.total() >= WAITING_IN_ALL:
            return False
        self._waiting[peer] += 1
        try:
            await asyncio.sleep(wait)
        finally:
            self._waiting[peer] -= 1
            self._waiting += Counter()  # forgets addresses at 0
        return True

    def __len__(self) -> int:
        return len(self._tries)

    def right(self, peer: str) -> None:
        """Note the right token from an address: its next wrong one counts as the first."""
        self._tries.pop(peer, None)
        self._known[peer] = monotonic()
        self._known.move_to_end(peer)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def noted(self, peer: str) -> float:
        """Count a wrong token, and log it where that is due; returns the seconds to wait."""
        now = monotonic()
        tries = self._tries.get(peer)
        if tries is None or now - tries.last > FORGOTTEN:
            tries = self._tries[peer] = _Tries()
        self._tries.move_to_end(peer)
        while len(self._tries) > REMEMBERED:
            self._tries.popitem(last=False)
        tries.number += 1
        tries.last = now
        if tries.number <= _SAID_AT_ONCE or now - tries.said >= SAID_AGAIN:
            if now - self._minute >= _MINUTE:
                self._lines, self._minute = 0, now
            self._lines += 1
            if self._lines > LINES:
                return _wait_after(tries.number)
            tries.said = now
            log.warning(
                "http.wrong_token",
                peer=peer,
                tries=tries.number,
                remedy="Somebody's page may have an old token; if nobody's, somebody guesses.",
            )
        return _wait_after(tries.number)


def _wait_after(number: int) -> float:
    return float(min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(number - 1, 16)))
