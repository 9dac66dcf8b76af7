"""An application's description of a scan: how to fetch its rows, and what to do with each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from groupflow.core.outcome import is_async
from groupflow.core.policy import RetryPolicy

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
MOST_SHARDS = 1000
MOST_ROWS = 10_000  # of a page


@dataclass(frozen=True, slots=True)
class Shard:
    """The shard for which a scan's functions work.

    Attributes:
        index: its number, from 0.
        count: how many shards there are: ``id % count = index`` is the usual slice.
        page: how many rows to fetch at most.
        after: the place of the last row that was done, if the scan keeps one; ``None`` before the
            first.
        skip: the keys of rows that failed and aren't due yet, or are dead letters; leave them out.
        fence: of the claim under which the shard is held; see `Task.fence`.
    """

    index: int
    count: int
    page: int
    after: Any = None
    skip: tuple[Any, ...] = ()
    fence: int = 0


Fetch: TypeAlias = Callable[[Shard], Awaitable[Sequence[Any]]]
Find: TypeAlias = Callable[[Sequence[Any], Shard], Awaitable[Sequence[Any]]]
Row: TypeAlias = Callable[[Any, Any], Awaitable[None]]

_FetchT = TypeVar("_FetchT", bound=Fetch)
_FindT = TypeVar("_FindT", bound=Find)
_RowT = TypeVar("_RowT", bound=Row)


class Scan:
    """Rows of a database that want work, in shards that daemons share.

    ```python
    orders = Scan("orders", shards=10)


    @orders.fetch
    async def fetch(shard: Shard) -> Sequence[Order]: ...


    @orders.row(key=lambda order: order.id)
    async def ship(order: Order, shard: Shard) -> None: ...


    app.include(orders)
    ```
    """

    def __init__(
        self,
        name: str,
        *,
        shards: int = 1,
        page: int = 100,
        idle: float = 8.0,
        max_attempts: int = 5,
        interval: float = 10.0,
        jitter: float = 0.0,
        on_retry: Literal["step-aside", "hold"] = "step-aside",
        timeout: float | None = None,
        fetch_timeout: float | None = 60.0,
    ) -> None:
        """Describes a scan.

        Args:
            name: letters, digits, ``_``, ``.`` and ``-``; no other scan of the namespace has it.
            shards: into how many slices the rows are divided.
            page: how many rows a shard fetches at once.
            idle: seconds for which a shard sleeps if it has nothing to do.
            max_attempts: attempts at a row before it is a dead letter.
            interval: seconds between them, as in ``[retry]``.
            jitter: share of each delay that is random, 0 to 1.
            on_retry: whether a shard goes on without a row that failed, or waits behind it.
            timeout: seconds that a row may take; past them it is cancelled and has failed.
            fetch_timeout: seconds that `fetch`, `find` or a page's connection may take; past them
                it is cancelled, and the shard tries again later. ``None`` for no limit.

        Raises:
            ValueError: a number or the name can't be used.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"the scan's name {name!r}: letters, digits, '_', '.', '-', up to 64")
        _require(1 <= shards <= MOST_SHARDS, name, f"shards = {shards}: 1 to {MOST_SHARDS}")
        _require(1 <= page <= MOST_ROWS, name, f"page = {page}: 1 to {MOST_ROWS}")
        _require(idle > 0, name, f"idle = {idle}: seconds above 0")
        _require(max_attempts >= 1, name, f"max_attempts = {max_attempts}: at least 1")
        _require(interval != 0, name, "interval = 0: below 0 even, above 0 progressive")
        _require(0 <= jitter <= 1, name, f"jitter = {jitter}: a share from 0 to 1")
        _require(on_retry in ("step-aside", "hold"), name, f"on_retry = {on_retry!r}")
        for setting, limit in (("timeout", timeout), ("fetch_timeout", fetch_timeout)):
            _require(limit is None or limit > 0, name, f"{setting} = {limit}: seconds above 0")
        self.name = name
        self.shards = shards
        self.page = page
        self.idle = idle
        self.retry = RetryPolicy(max_attempts, interval, jitter)
        self.holds = on_retry == "hold"
        self.timeout = timeout
        self.fetch_timeout = fetch_timeout
        self._fetch: Fetch | None = None
        self._find: Find | None = None
        self._row: Row | None = None
        self._key: Callable[[Any], Any] | None = None
        self._after: Callable[[Any], Any] | None = None
        self._wake: Callable[[], Awaitable[object]] | None = None

    def fetch(self, function: _FetchT) -> _FetchT:
        """Register the coroutine function that returns a page of a shard's rows that want work.

        In any order, unless the scan keeps a place (`row(after=…)`). No rows: nothing to do.
        """
        self._fetch = _coroutine(function, self.name, "fetch")
        return function

    def find(self, function: _FindT) -> _FindT:
        """Register the coroutine function that returns those rows of some keys that want work.

        Only of the shard's slice. With it, failed rows are tried again when they are due, at any
        place, and a row's dead letter can be redriven at once. A scan that keeps a place and steps
        aside needs it.
        """
        self._find = _coroutine(function, self.name, "find")
        return function

    def row(
        self, *, key: Callable[[Any], Any], after: Callable[[Any], Any] | None = None
    ) -> Callable[[_RowT], _RowT]:
        """Register the coroutine function that does the work of a row.

        The row is done if it returns, and deferred if it raises.

        Args:
            key: makes a row's key: a value that JSON can carry, 200 bytes at most.
            after: for tables without a column that tells what is done: makes a row's place, by
                which `fetch` sorts. `Shard.after` is the place of the last one that was done. Whole
                numbers, or texts that the database sorts as Python does; no two rows have the same.
        """

        def register(function: _RowT) -> _RowT:
            self._row = _coroutine(function, self.name, "row")
            self._key, self._after = key, after
            return function

        return register

    async def wake(self) -> None:
        """End the sleep of all shards: there is something to do.

        Shards see all rows written before, even a shard that was about to fall asleep.

        Raises:
            RuntimeError: no daemon runs the scan in this process; elsewhere, publish a message of
                the type ``scan:<name>``.
            StoreUnavailable: Redis does not answer; some may sleep on.
        """
        if self._wake is None:
            raise RuntimeError(
                f"no daemon runs the scan {self.name!r} in this process: publish a message of the "
                f"type 'scan:{self.name}' instead"
            )
        await self._wake()

    # Called by daemons:

    def check(self) -> None:
        """Check that all functions are there.

        Raises:
            ValueError: something is missing.
        """
        _require(self._fetch is not None, self.name, "it has no @fetch")
        _require(self._row is not None, self.name, "it has no @row")
        if self.keeps_place and not self.holds:
            words = "a scan that keeps a place (after=) needs @find, or on_retry='hold'"
            _require(self.finds, self.name, words)

    def bind(self, wake: Callable[[], Awaitable[object]] | None) -> None:
        """Note that a daemon in this process begins to run it, or ends (``None``)."""
        self._wake = wake

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Surrounds the work of a daemon."""
        yield

    @property
    def keeps_place(self) -> bool:
        """Whether it has a cursor."""
        return self._after is not None

    @property
    def finds(self) -> bool:
        """Whether it can fetch rows by their keys."""
        return self._find is not None

    async def rows(self, shard: Shard) -> Sequence[Any]:
        """A page of rows."""
        assert self._fetch is not None  # noqa: S101
        return await self._fetch(shard)

    async def rows_of(self, keys: Sequence[Any], shard: Shard) -> Sequence[Any]:
        """The rows of some keys that still want work."""
        assert self._find is not None  # noqa: S101
        return await self._find(keys, shard)

    @asynccontextmanager
    async def working(self, shard: Shard) -> AsyncIterator[Shard]:
        """Surrounds the work of a page; yields the shard that its rows are given."""
        yield shard

    async def work(self, row: Any, shard: Shard) -> None:
        """Do the work of a row, with the shard that `working` gave."""
        assert self._row is not None  # noqa: S101
        await self._row(row, shard)

    def key_of(self, row: Any) -> Any:
        """A row's key."""
        assert self._key is not None  # noqa: S101
        return self._key(row)

    def place_of(self, row: Any) -> Any:
        """A row's place."""
        assert self._after is not None  # noqa: S101
        return self._after(row)


def _require(holds: bool, name: str, words: str) -> None:
    if not holds:
        raise ValueError(f"the scan {name!r}: {words}")


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _coroutine(function: _Function, name: str, role: str) -> _Function:
    if not is_async(function):
        raise ValueError(f"the scan {name!r}: its {role} has to be a coroutine function")
    return function


async def fetched(scan: Scan, shard: Shard) -> list[Any]:
    """A page of a shard's rows.

    Raises:
        TimeoutError: it took too long; and all that the application raises.
    """
    async with within(scan.fetch_timeout, "fetch took", "fetch_timeout"):
        return list(await scan.rows(shard))


async def found(scan: Scan, keys: Sequence[Any], shard: Shard) -> list[Any]:
    """The rows of some keys that still want work; errors as of `fetched`."""
    async with within(scan.fetch_timeout, "find took", "fetch_timeout"):
        return list(await scan.rows_of(keys, shard))


@asynccontextmanager
async def working(scan: Scan, shard: Shard) -> AsyncIterator[Shard]:
    """Surrounds the work of a page or a row; errors as of `fetched`."""
    async with AsyncExitStack() as stack:
        async with within(scan.fetch_timeout, "connection took", "fetch_timeout"):
            told = await stack.enter_async_context(scan.working(shard))
        yield told


async def worked(scan: Scan, row: Any, shard: Shard) -> None:
    """Do the work of a row; errors as of `fetched`."""
    async with within(scan.timeout, "the row took", "timeout"):
        await scan.work(row, shard)


@asynccontextmanager
async def within(seconds: float | None, what: str, setting: str) -> AsyncIterator[None]:
    """Limit what a block takes.

    Raises:
        TimeoutError: it took longer; it names the setting.
    """
    try:
        async with asyncio.timeout(seconds) as scope:
            yield
    except TimeoutError as error:
        if not scope.expired():  # the application's own
            raise
        raise TimeoutError(f"{what} over {seconds:g} s ({setting})") from error
