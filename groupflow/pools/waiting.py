"""Workers that wait for tasks: they ask again when Redis wakes their pool."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import GroupflowError, PoolFull, SessionLost
from groupflow.flow.handling import was_cancelled
from groupflow.pools.pullers import Given
from groupflow.store.client import StoreClient

log = structlog.get_logger("groupflow.pools")

LOOK = 1.0  # seconds between two looks while a worker waits and no wake comes
REST = 0.02  # seconds between two looks: wakes within them count as one
_OF_ONE = (PoolFull, SessionLost)  # errors that say nothing of other workers

Ask = Callable[[], Awaitable[Given]]


class _Guest:
    """A waiting worker."""

    def __init__(self, ask: Ask, name: str) -> None:
        self.ask = ask
        self.name = name
        self.given: asyncio.Future[Given] = asyncio.get_running_loop().create_future()


class Lines:
    """The waiting workers by pool: they ask again when Redis wakes their pool.

    One connection for each partition hears its wakes for all of them. The workers of a pool stand
    in line: a wake serves them one after another until one gets nothing. So a thousand workers that
    wait for a quiet pool cost only their connections.
    """

    def __init__(
        self, clients: Sequence[StoreClient], tend: Callable[[], Awaitable[object]]
    ) -> None:
        """Listens only once a worker waits; calls `tend` before each look."""
        self._clients = clients
        self._tend = tend
        self._lines: dict[str, deque[_Guest]] = defaultdict(deque)
        self._told = asyncio.Event()
        self._work: list[asyncio.Task[None]] = []
        self._is_over = False

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def dismiss(self, name: str) -> None:
        """Answer a worker that leaves with nothing."""
        for line in self._lines.values():
            for guest in [each for each in line if each.name == name]:
                line.remove(guest)
                guest.given.cancel()

    async def wait(self, pool: str, name: str, ask: Ask, seconds: float) -> Given | None:
        """Wait for a pool to give something.

        Args:
            pool: which.
            name: the worker's, in the store.
            ask: claims, when there may be something.
            seconds: for how long.

        Returns:
            What there was, or ``None`` where there was nothing.

        Raises:
            PoolFull: its lease ran out meanwhile, and other workers took its place.
        """
        if self._is_over:
            return None
        if not self._work:
            listeners = [self._listen(client) for client in self._clients]
            self._work = [asyncio.create_task(each) for each in (self._serve(), *listeners)]
        guest = _Guest(ask, name)
        self._lines[pool].append(guest)
        try:
            async with asyncio.timeout(seconds):
                return await guest.given
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            return None  # it was dismissed
        finally:
            guest.given.cancel()
            with suppress(ValueError):
                self._lines[pool].remove(guest)

    async def close(self) -> None:
        """Answer all with nothing."""
        self._is_over = True
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        for line in self._lines.values():
            for guest in line:
                guest.given.cancel()

    async def _serve(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), LOOK)
            self._told.clear()
            if len(self):
                try:
                    await self._tend()
                    for pool in [pool for pool, line in self._lines.items() if line]:
                        await self._serve_line(self._lines[pool])
                except Exception as error:  # noqa: BLE001  no other worker would be served again
                    tell = log.debug if isinstance(error, GroupflowError) else log.error
                    tell("pools.look_failed", error=str(error) or repr(error))
            await asyncio.sleep(REST)

    async def _serve_line(self, line: deque[_Guest]) -> None:
        """Serve one after another, until one gets nothing."""
        for _ in range(len(line)):
            if not line:
                return
            guest = line[0]
            if guest.given.done():
                line.popleft()
                continue
            try:
                given = await guest.ask()
            except Exception as error:  # ends this worker's wait only, if it isn't the store's
                if isinstance(error, GroupflowError) and not isinstance(error, _OF_ONE):
                    raise
                if not guest.given.done():  # it may have gone meanwhile, and left the line
                    guest.given.set_exception(error)
                with suppress(ValueError):
                    line.remove(guest)
                continue
            if not given.is_new:
                line.rotate(-1)  # this worker alone may get nothing
                return
            if not guest.given.done():
                guest.given.set_result(given)
            if line and line[0] is guest:
                line.popleft()

    async def _listen(self, client: StoreClient) -> None:
        backoff = Backoff()
        while True:
            try:
                async with client.wakes() as wakes:
                    await self._hear(wakes, backoff)
            except GroupflowError as error:
                log.debug("pools.wake_interrupted", error=str(error))
            await asyncio.sleep(backoff.next())

    async def _hear(self, wakes: AsyncIterator[bytes], backoff: Backoff) -> None:
        async for kind in wakes:
            backoff.reset()
            if kind not in (b"due", b"all"):
                self._told.set()
