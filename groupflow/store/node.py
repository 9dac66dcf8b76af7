"""The node that serves, as redis-py reaches it: for what a client asks once in a while."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from groupflow.settings.transport import address_of, split_tls
from groupflow.store.keys import Keys
from groupflow.store.refusals import translated
from groupflow.store.topology import topology_of


class _TlsConnection(SSLConnection):
    """A connection whose server is verified as we say, not as the library's options do."""

    def __init__(self, *, tls: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = tls


def make_pool(url: str, timeout: float) -> ConnectionPool:
    """Connections to a server; nothing connects yet.

    Args:
        url: ``redis://``, ``rediss://`` with its TLS files, or ``unix://``.
        timeout: seconds for a connection; each call has one of its own over the whole of it.
    """
    url, tls = split_tls(url)
    pool = ConnectionPool.from_url(
        url,
        socket_timeout=None,
        socket_connect_timeout=timeout,
        **({} if url.startswith("unix:") else {"socket_keepalive": True}),
        # Without it redis-py names itself by CLIENT SETINFO, a right that nothing else needs.
        driver_info=None,
        retry=Retry(NoBackoff(), 0),
    )
    if tls is not None:
        pool.connection_class = _TlsConnection
        pool.connection_kwargs["tls"] = tls
    return pool


class NodeClient:
    """A client of the node that serves a namespace now; later it may be another."""

    def __init__(self, url: str, keys: Keys, timeout: float) -> None:
        """Connects on first use; the timeout is in seconds."""
        self.keys = keys
        self.address = address_of(url)  # hosts and ports
        self._url, self._timeout = url, timeout
        self._topology = topology_of(url, keys.front)
        self._node = ""  # the URL of the one that served last
        self._pools: dict[str, ConnectionPool] = {}  # by node

    async def _located(self) -> Redis:
        """redis-py's client of the node that serves now."""
        # While this waits, another call may give the node up, or find the next one.
        node = self._node = self._node or await self._topology.find(self._timeout)
        for other in [each for each in self._pools if each != node]:
            if (pool := self._pools.pop(other, None)) is not None:
                await pool.disconnect()
        if node not in self._pools:
            self._pools[node] = make_pool(node, self._timeout)
        return Redis(connection_pool=self._pools[node])

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turns redis-py's errors into ours."""
        try:
            yield
        except (RedisError, OSError) as error:
            self._node = ""
            raise translated(error, self.address) from error

    async def info(self, section: str) -> dict[str, Any]:
        """A section of Redis's own ``INFO``.

        Raises:
            StoreUnavailable: no answer.
        """
        with self._telling():
            async with asyncio.timeout(self._timeout):
                return dict(await (await self._located()).info(section))

    @asynccontextmanager
    async def wakes(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Subscribe to the namespace's wake channel.

        Yields an iterator with an item a wake: ``plain`` where a plain task may be claimed,
        ``grouped`` where one of a group may be, ``ready`` where either may, ``due`` where a due
        time was set, ``pool`` where something may be claimed from a pool, ``hold:`` and a group
        where that is held back, ``hold`` where all are. It begins with ``all``: any of these may
        have passed before the subscription. It ends with `StoreUnavailable` when the connection
        does.
        """
        with self._telling():
            pubsub = (await self._located()).pubsub()
        try:
            with self._telling():
                async with asyncio.timeout(self._timeout):
                    if self._topology.is_cluster:
                        await pubsub.ssubscribe(self.keys.wake)
                    else:
                        await pubsub.subscribe(self.keys.wake)
                    # Sent is not done: every wake is heard only from the answer on.
                    while await pubsub.get_message(timeout=self._timeout) is None:
                        pass
            yield self._wakes(pubsub)
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def _wakes(self, pubsub: Any) -> AsyncIterator[bytes]:
        yield b"all"
        while True:
            with self._telling():
                message = await pubsub.get_message(timeout=30.0)
                if message is None:
                    # A silent channel or a dead peer: an answer to a ping tells which.
                    await pubsub.ping()
                    message = await pubsub.get_message(timeout=self._timeout)
                    if message is None:
                        raise RedisTimeoutError("no answer to a ping")
                if message["type"] == "sunsubscribe":  # and later pings are answered all the same
                    raise RedisConnectionError("another node has the channel's slot now")
            if message["type"] in ("message", "smessage"):
                yield message["data"]

    async def ping(self) -> None:
        """Ask for a sign of life.

        Raises:
            StoreUnavailable: none came.
            ServerUnreachable: Redis refused the credentials.
        """
        with self._telling():
            async with asyncio.timeout(self._timeout):
                await (await self._located()).ping()

    async def erase_namespace(self) -> None:
        """Delete every key of the namespace, tasks and all: for a demo's or a test's own corner.

        Raises:
            StoreUnavailable: no answer; some may be left.
        """
        with self._telling():
            cursor = -1
            while cursor != 0:
                async with asyncio.timeout(self._timeout):  # for each step
                    redis = await self._located()
                    cursor, keys = await redis.scan(max(cursor, 0), self.keys("*"), 1000)
                    if keys:
                        await redis.unlink(*keys)

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.disconnect()
