"""What callers of the page may take, so that none is served at the cost of others.

- `FairQueue`: requests are let in by caller in turn, a few each turn of the event loop.
- `BodyQuota`: the bytes of one caller's bodies at a time.
- `Reads`: the share of Redis's time for callers without the token.
- `WrongTokens`: a delay for each wrong token.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import TypeVar

import structlog

from groupflow.core.errors import StoreUnavailable
from groupflow.operate.namespace import IDLE
from groupflow.ops.page.problems import RequestRefused

log = structlog.get_logger("groupflow.http")

_Noted = TypeVar("_Noted")

LET_IN = 16  # requests each turn of the event loop
BODIES = 16 * 1024 * 1024  # bytes of one caller's bodies at a time
ROOM_WITHIN = 10.0  # seconds that a body waits for room
SHARE = 0.05  # of Redis's time, for all callers without the token
SAVED = 0.5  # seconds of reading that quiet saves up, at most
WAITING = 64  # callers without the token that wait to read
AT_ONCE = 4  # reads of callers with the token
_SHORTEST = 0.001  # seconds of a wait: one that rounds to 0 would loop for ever
_SCHEDULED = Path("/proc/thread-self/schedstat")  # ns on a core, ns of waiting for one, times
_BUSY = "Too many look at this page just now. Try again soon, or show the token."
_NO_ROOM = "Other large bodies of this token are still under way: send fewer at a time."

DELAY = 1.0  # seconds before a wrong token is answered
DELAYED = 4  # answers at a time to one address
DELAYED_IN_ALL = 128
KNOWN = 3600.0  # seconds for which an address that showed the right token is always read
REMEMBERED = 1024  # addresses
LINES = 60  # in the log within a minute, about all addresses
SAID_AGAIN = 10.0  # seconds between two lines about one address
_MINUTE = 60.0


class FairQueue:
    """Lets requests in: callers take turns, however many requests each of them has."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def enter(self, caller: str) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._let_in)
        turn = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        await turn

    def _let_in(self) -> None:
        for _ in range(LET_IN):
            if not self._waiting:
                return
            caller, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if not turn.done():  # its caller may be gone
                turn.set_result(None)
            if line:
                self._waiting[caller] = line
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._let_in)


class BodyQuota:
    """Bytes for one caller's bodies; where there are too few, bodies wait in their order."""

    def __init__(self) -> None:
        self._free = BODIES
        self._freed = asyncio.Event()
        self._first = asyncio.Lock()

    @asynccontextmanager
    async def of(self, size: int) -> AsyncIterator[None]:
        """Hold so many bytes, `BODIES` at most, for as long as the block.

        Raises:
            RequestRefused: there was no room for `ROOM_WITHIN` seconds.
        """
        try:
            async with asyncio.timeout(ROOM_WITHIN), self._first:
                while self._free < size:
                    self._freed.clear()
                    await self._freed.wait()
                self._free -= size
        except TimeoutError:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            raise RequestRefused(status, _NO_ROOM, retry_after=ROOM_WITHIN) from None
        try:
            yield
        finally:
            self._free += size
            self._freed.set()


class Reads:
    """Decides when each caller reads Redis, which does one thing at a time: tasks come first.

    Callers without the token read one after another, and for a share of the time only: small
    requests are answered at once, and a flood waits for itself. A page gives way to all else on its
    machine, and its wait for a core takes none of Redis's time: if it counted, a look on a busy
    machine would make the next one wait for minutes. Nor does a wait for a silent partition.
    """

    def __init__(self) -> None:
        self._trusted = asyncio.Semaphore(AT_ONCE)
        self._one = asyncio.Lock()
        self._waiting = 0
        self._saved = SAVED
        self._counted = monotonic()

    @asynccontextmanager
    async def turn(self, *, is_trusted: bool) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for as long as the block.

        Raises:
            RequestRefused: too many wait already.
        """
        if is_trusted:
            async with self._trusted:
                yield
            return
        if self._waiting >= WAITING:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, _BUSY)
        self._waiting += 1
        try:
            await self._one.acquire()
        finally:
            self._waiting -= 1
        try:
            await self._save_up()
            began, idle = monotonic() - _waited_for_core(), [0.0]
            IDLE.set(idle)
            try:
                yield
            except StoreUnavailable:
                began = math.inf  # it is silent, and did nothing for the caller that is known
                raise
            finally:
                self._saved -= max(0.0, monotonic() - _waited_for_core() - began - idle[0])
        finally:
            self._one.release()

    async def _save_up(self) -> None:
        """Wait until there is time to spend."""
        while True:
            now = monotonic()
            self._saved = min(SAVED, self._saved + (now - self._counted) * SHARE)
            self._counted = now
            if self._saved >= 0:
                return
            await asyncio.sleep(max(-self._saved / SHARE, _SHORTEST))


def _waited_for_core() -> float:
    """Seconds that this thread was ready to run and did not; 0 where the system doesn't say."""
    try:
        return int(_SCHEDULED.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class WrongTokens:
    """Delays the answers to wrong tokens, and logs them by address.

    `DELAYED` answers wait at a time for each address. More tokens are refused unread, right or
    wrong: else a caller that sends a thousand guesses at once would learn the right one at once.
    Only an address that showed the right token within `KNOWN` seconds is always read, even if
    another caller guesses from there.
    """

    def __init__(self) -> None:
        self._tries: OrderedDict[str, tuple[int, float]] = OrderedDict()  # how many; when logged
        self._delayed: Counter[str] = Counter()
        self._known: OrderedDict[str, float] = OrderedDict()
        self._lines, self._minute = 0, float("-inf")

    def __len__(self) -> int:
        """The addresses that are remembered, those with a right token apart from the others."""
        return len(self._tries) + len(self._known)

    def is_read(self, peer: str) -> bool:
        """Whether a token from this address is read now."""
        is_known = monotonic() - self._known.get(peer, float("-inf")) < KNOWN
        return is_known or self._has_room(peer)

    def _has_room(self, peer: str) -> bool:
        return self._delayed[peer] < DELAYED and self._delayed.total() < DELAYED_IN_ALL

    def right(self, peer: str) -> None:
        """Note the right token from an address."""
        self._tries.pop(peer, None)
        _remember(self._known, peer, monotonic())

    async def wrong(self, peer: str) -> bool:
        """Note a wrong token from an address, and wait.

        Returns False where too many wait already: the request is to be refused at once.
        """
        self._note(peer)
        if not self._has_room(peer):
            return False
        self._delayed[peer] += 1
        try:
            await asyncio.sleep(DELAY)
        finally:
            self._delayed[peer] -= 1
            self._delayed += Counter()  # forgets addresses at 0
        return True

    def _note(self, peer: str) -> None:
        """Count a wrong token, and log it where that is due."""
        now = monotonic()
        number, said = self._tries.get(peer, (0, float("-inf")))
        number += 1
        if now - self._minute >= _MINUTE:
            self._lines, self._minute = 0, now
        if now - said >= SAID_AGAIN and self._lines < LINES:
            self._lines += 1
            said = now
            log.warning(
                "http.wrong_token",
                peer=peer,
                tries=number,
                remedy="Somebody's page may have an old token; if nobody's, somebody guesses.",
            )
        _remember(self._tries, peer, (number, said))


def _remember(table: OrderedDict[str, _Noted], peer: str, value: _Noted) -> None:
    """Note it as the latest; the address that was noted longest ago is forgotten."""
    table[peer] = value
    table.move_to_end(peer)
    while len(table) > REMEMBERED:
        table.popitem(last=False)
