"""Wrong tokens: each address waits longer for its next answer, and the log says who tried.

Who shows the right token never waits, whoever else tries from the same address. A wait holds a
connection and nothing else; so many wait at a time, and what comes on top is answered at once, as
refused. What is remembered is bounded too: the address that has been quiet longest is forgotten.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from time import monotonic

import structlog

log = structlog.get_logger("groupflow.http")

FIRST_WAIT = 0.25  # seconds for the first wrong token; doubled with each
LONGEST_WAIT = 5.0  # seconds
FORGOTTEN = 300.0  # seconds of quiet after which an address starts anew
REMEMBERED = 1024  # addresses
WAITING = 32  # answers at a time
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
        self._waiting = 0

    async def wrong(self, peer: str) -> bool:
        """Take note of a wrong token, and wait.

        Args:
            peer: the address that sent it.

        Returns:
            False where too many wait already: the request is to be refused at once.
        """
        wait = self.noted(peer)
        if self._waiting >= WAITING:
            return False
        self._waiting += 1
        try:
            await asyncio.sleep(wait)
        finally:
            self._waiting -= 1
        return True

    def __len__(self) -> int:
        return len(self._tries)

    def right(self, peer: str) -> None:
        """The right token came from there: the next slip is the first again."""
        self._tries.pop(peer, None)

    def noted(self, peer: str) -> float:
        """Count a wrong token, and say so in the log where that is due; seconds to wait for it."""
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
            tries.said = now
            log.warning(
                "http.wrong_token",
                peer=peer,
                tries=tries.number,
                remedy="Somebody's page may have an old token; if nobody's, somebody guesses.",
            )
        return float(min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tries.number - 1, 16)))
