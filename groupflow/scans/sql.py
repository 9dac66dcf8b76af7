"""A scan of a table, by SQLAlchemy: PostgreSQL, MariaDB or MySQL, SQLite. Takes groupflow[sql].

SQL arguments (`table`, `where`, `done` …) are the application's own text and stand in statements as
they are; keys and places are always bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import GroupflowError
from groupflow.core.masking import mask_secrets
from groupflow.flow.handling import was_cancelled
from groupflow.scans.scan import Row, Scan, Shard, within

try:
    from sqlalchemy import TextClause, bindparam, text
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
except ImportError as error:
    raise ImportError("SqlScan needs SQLAlchemy: pip install 'groupflow[sql]'") from error

log = structlog.get_logger("groupflow.scans")

CLOSING = 3.0  # seconds to say good-bye; a silent database is left without
OPENING = 60.0  # seconds to begin to listen
PROBE = 30.0  # seconds without a notification after which the database is asked for an answer
POOL_TIMEOUT = 3600.0  # seconds a row waits for a connection, if fewer are allowed than needed

_RowT = TypeVar("_RowT", bound=Row)


@dataclass(frozen=True, slots=True)
class SqlShard(Shard):
    """A shard of a table.

    Attributes:
        connection: in the transaction that marks the row: what a function writes through it is
            committed with the mark, or not at all. ``None`` with ``transaction=False``.
    """

    connection: AsyncConnection | None = None


class SqlScan(Scan):
    """Rows of one table.

    ```python
    orders = SqlScan(
        "orders", url="postgresql+asyncpg://…", table="orders", key="id",
        where="status = 0", done="status = 1", shards=10,
    )

    @orders.row()
    async def ship(order: Any, shard: SqlShard) -> None:
        await shard.connection.execute(text("INSERT INTO …"), …)
    ```
    """

    def __init__(
        self,
        name: str,
        *,
        table: str,
        url: str = "",
        engine: AsyncEngine | None = None,
        key: str = "id",
        columns: str = "*",
        where: str = "",
        done: str = "",
        after: str = "",
        slice: str = "",
        transaction: bool = True,
        listen: str = "",
        connections: int = 16,
        **facts: Any,
    ) -> None:
        """Describes a scan of a table.

        Args:
            name: as of `Scan`, and so are ``shards``, ``page``, ``idle`` and the rest (`facts`).
            table: the table, or other text that may stand behind FROM.
            url: of the database, such as ``postgresql+asyncpg://user:password@host/name``.
            engine: or an engine of the application's own, which it closes itself.
            key: the column that tells rows apart; whole numbers or texts.
            columns: the columns to select; they must include the key and `after`.
            where: which rows want work.
            done: what marks a row, as behind SET. Without it the rows' function marks them. The
                mark, and its commit, may take `fetch_timeout` each.
            after: for a table without a status: the column by whose order rows are taken.
            slice: a whole number made of a row, which assigns it to a shard; `key` if none is
                given.
            transaction: whether a row's function and its mark are one transaction, the mark first:
                a row that another process has done meanwhile is passed over, and none can do it
                while its function runs. Else the mark comes after the function.
            listen: a channel of PostgreSQL's NOTIFY that wakes the scan; needs asyncpg.
            connections: how many a daemon opens at most, and one more to listen; shards that find
                none free wait.
            facts: those of `Scan`.

        Raises:
            ValueError: the arguments don't go together.
        """
        super().__init__(name, **facts)
        if bool(url) == (engine is not None):
            raise ValueError(f"the scan {name!r}: give it url or engine, one of them")
        if not (where or after):
            raise ValueError(f"the scan {name!r}: where or after has to say which rows want work")
        if done and not where:
            raise ValueError(f"the scan {name!r}: done marks rows that where then leaves out")
        self._url = url
        self._engine = engine
        self._own_engine = engine is None
        self._key_column = key
        self._after_column = after
        self._slice = slice or key
        self._transaction = transaction
        self._listen = listen
        self._connections = connections
        self._is_behind = after if after else key
        self._columns, self._table, self._where = columns, table, where
        self._mark: TextClause | None = None
        if done:
            self._mark = text(f"UPDATE {table} SET {done} WHERE {key} = :key AND ({where})")  # noqa: S608

    def row(
        self,
        *,
        key: Callable[[Any], Any] | None = None,
        after: Callable[[Any], Any] | None = None,
    ) -> Callable[[_RowT], _RowT]:
        """Register the coroutine function that does the work of a row.

        A row has its columns as attributes. `key` and `after` read the columns that the scan
        names, unless they are given.
        """
        by_column = after or (self._column(self._after_column) if self._after_column else None)
        return super().row(key=key or self._column(self._key_column), after=by_column)

    @staticmethod
    def _column(name: str) -> Callable[[Any], Any]:
        column = name.rpartition(".")[2].strip('"`')
        return lambda row: row._mapping[column]

    @property
    def engine(self) -> AsyncEngine:
        """The engine through which it connects.

        Raises:
            RuntimeError: the scan isn't running.
        """
        if self._engine is None:
            raise RuntimeError(f"the scan {self.name!r} isn't running: it has no engine yet")
        return self._engine

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Surrounds the work of a daemon."""
        async with AsyncExitStack() as stack:
            if self._own_engine:
                most = min(self.shards, self._connections) + bool(self._listen)
                pool: dict[str, Any] = {"pool_pre_ping": True}
                if not self._url.startswith("sqlite"):
                    pool |= {"pool_size": most, "max_overflow": 0, "pool_timeout": POOL_TIMEOUT}
                self._engine = create_async_engine(self._url, **pool)
                stack.push_async_callback(self._close)
            if self._listen:
                listening = asyncio.create_task(_listen(self.engine, self._listen, self.wake))
                stack.push_async_callback(_end, listening)
            yield

    async def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await engine.dispose()

    # Called by daemons:

    def check(self) -> None:
        """Check that all functions are there; errors as of `Scan`."""
        if self._row is None:
            raise ValueError(f"the scan {self.name!r}: it has no @row()")

    @property
    def finds(self) -> bool:
        """Whether it can fetch rows by their keys."""
        return True

    async def rows(self, shard: Shard) -> Sequence[Any]:
        """A page of rows."""
        clauses, bound = self._clauses(shard), {}
        if shard.skip and not self.keeps_place:
            clauses.append(f"{self._key_column} NOT IN :keys")
            bound["keys"] = list(shard.skip)
        if shard.after is not None:
            clauses.append(f"{self._after_column} > :after")
            bound["after"] = shard.after
        return await self._select(clauses, bound, shard.page)

    async def rows_of(self, keys: Sequence[Any], shard: Shard) -> Sequence[Any]:
        """The rows of some keys that still want work."""
        clauses = [*self._clauses(shard), f"{self._key_column} IN :keys"]
        return await self._select(clauses, {"keys": list(keys)}, len(keys))

    def _clauses(self, shard: Shard) -> list[str]:
        clauses = [f"({self._where})"] if self._where else []
        if shard.count > 1:
            count = shard.count  # a remainder may be negative
            clauses.append(f"(({self._slice}) % {count} + {count}) % {count} = {shard.index}")
        return clauses

    async def _select(
        self, clauses: Sequence[str], bound: dict[str, Any], most: int
    ) -> Sequence[Any]:
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        statement = text(
            f"SELECT {self._columns} FROM {self._table} {where} "  # noqa: S608
            f"ORDER BY {self._is_behind} LIMIT {most}"
        )
        if "keys" in bound:
            statement = statement.bindparams(bindparam("keys", expanding=True))
        async with self.engine.connect() as connection:
            return (await connection.execute(statement, bound)).all()

    @asynccontextmanager
    async def working(self, shard: Shard) -> AsyncIterator[Shard]:
        """Surrounds the work of a page: its rows go over one connection."""
        mine = {each.name: getattr(shard, each.name) for each in fields(Shard)}
        if not self._transaction:
            yield SqlShard(**mine)
            return
        async with self.engine.connect() as connection:
            yield SqlShard(**mine, connection=connection)

    async def work(self, row: Any, shard: Shard) -> None:
        """Do the work of a row, and mark it."""
        connection = shard.connection if isinstance(shard, SqlShard) else None
        if connection is None:
            await super().work(row, shard)
            if self._mark is not None:
                async with self._within("the mark took"), self.engine.begin() as marking:
                    await marking.execute(self._mark, {"key": self.key_of(row)})
            return
        async with connection.begin() as transaction:
            if await self._takes(row, connection):
                await super().work(row, shard)
            if transaction.is_active:  # the function may have ended it
                async with self._within("the commit took"):
                    await transaction.commit()

    async def _takes(self, row: Any, connection: AsyncConnection) -> bool:
        """Mark a row; returns whether no other process has done it."""
        if self._mark is None:
            return True
        async with self._within("the mark took"):
            marked = await connection.execute(self._mark, {"key": self.key_of(row)})
        return bool(marked.rowcount)

    def _within(self, what: str) -> AbstractAsyncContextManager[None]:
        """A limit for what is groupflow's own: a silent database would hold the shard for good."""
        return within(self.fetch_timeout, what, "fetch_timeout")


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _listen(engine: AsyncEngine, channel: str, wake: Callable[[], Awaitable[None]]) -> None:
    """Wake at each notification, for ever; many notifications at once are one wake.

    A new connection begins with a wake: notifications may have come while there was none.
    """
    backoff = Backoff()
    while True:
        try:
            await _listen_once(engine, channel, wake, backoff)
        except GroupflowError as error:
            log.warning("scan.not_woken", channel=channel, error=str(error))
        except Exception as error:  # each driver has its own
            if was_cancelled():
                raise asyncio.CancelledError from error
            what = mask_secrets(f"{type(error).__name__}: {error}")
            log.warning("scan.not_listening", channel=channel, error=what)
        await asyncio.sleep(backoff.next())


async def _listen_once(
    engine: AsyncEngine, channel: str, wake: Callable[[], Awaitable[None]], backoff: Backoff
) -> None:
    stir = asyncio.Event()

    def told(*_what: Any) -> None:  # of a notification, or the connection's end
        stir.set()

    async with AsyncExitStack() as stack:
        async with asyncio.timeout(OPENING):
            connection = await stack.enter_async_context(engine.connect())
            driver: Any = (await connection.get_raw_connection()).driver_connection
            driver.add_termination_listener(told)
            await driver.add_listener(channel, told)
        try:
            log.info("scan.listening", channel=channel)
            stir.set()
            while True:
                while not await _stirs(stir):
                    await _probe(driver)
                stir.clear()
                if driver.is_closed():
                    raise ConnectionError("the database closed the connection")
                await wake()
                backoff.reset()
        finally:
            if not driver.is_closed():
                driver.remove_termination_listener(told)
                async with asyncio.timeout(CLOSING):
                    await driver.remove_listener(channel, told)


async def _stirs(stir: asyncio.Event) -> bool:
    """Whether something comes within `PROBE`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PROBE):
            await stir.wait()
    return stir.is_set()


async def _probe(driver: Any) -> None:
    """See that the database still answers: a connection that a gateway has forgotten stays silent.

    Raises:
        ConnectionError: it doesn't; the connection is closed.
    """
    try:
        await driver.execute("SELECT 1", timeout=CLOSING)
    except TimeoutError:
        driver.terminate()
        raise ConnectionError(f"no answer in {CLOSING:g} s") from None
