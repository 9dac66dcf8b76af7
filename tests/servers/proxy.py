"""A TCP proxy on loopback that can lose what a network loses: connections, replies, whole peers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Literal, TypeAlias

Way: TypeAlias = Literal["up", "down"]  # towards the server, and back

_CHUNK = 65536


class Proxy:
    """Stands between clients and one server.

    Attributes:
        port: where clients connect to.
    """

    def __init__(self, target: int) -> None:
        """Describe a proxy; nothing listens yet.

        Args:
            target: the server's port on 127.0.0.1.
        """
        self._target = target
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._upstreams: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._flows: dict[Any, asyncio.Event] = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._is_open = True
        self._keeps_upstream = False
        for flow in self._flows.values():
            flow.set()
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Cut everything and listen no more."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection, on both sides; what is held in between is lost."""
        for writer in (*self._clients, *self._upstreams):
            writer.transport.abort()

    def hold(self, *ways: Way) -> None:
        """Carry nothing more in these directions, and keep all connections open."""
        for way in ways:
            self._flows[way].clear()

    def release(self) -> None:
        """Carry on in both directions; what was held goes through first."""
        for flow in self._flows.values():
            flow.set()

    def refuse(self, *, refuse: bool) -> None:
        """Refuse all connects, or take them again."""
        self._is_open = not refuse

    def half_open(self) -> None:
        """Reset the clients' side only: the server goes on believing in its peers.

        Until `cut`, which tells it.
        """
        self._keeps_upstream = True
        for writer in list(self._clients):
            writer.transport.abort()

    def heal(self) -> None:
        """Be a plain wire again; servers that were left half-open are told."""
        if self._keeps_upstream:
            self._keeps_upstream = False
            self.cut()
        self._is_open = True
        self.release()

    @property
    def target(self) -> int:
        """The server's port on 127.0.0.1."""
        return self._target

    def way_of(self, _client: asyncio.StreamWriter, way: Way) -> Any:
        """The name of what carries a client's bytes in that direction."""
        return way

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.transport.abort()
            return
        self._clients.add(writer)
        try:
            upstream, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            self._clients.discard(writer)
            return
        self._upstreams.add(to_server)
        there = self._spawn(self._pump(reader, to_server, self.way_of(writer, "up")))
        back = self._spawn(self._pump(upstream, writer, self.way_of(writer, "down")))
        with suppress(asyncio.CancelledError):
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            writer.transport.abort()
            self._clients.discard(writer)
            while self._keeps_upstream and not back.done():
                await asyncio.wait([back], timeout=0.1)
        for pump in (there, back):
            pump.cancel()
        for end in (writer, to_server):
            end.transport.abort()
        self._clients.discard(writer)
        self._upstreams.discard(to_server)

    def _spawn(self, pump: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(pump)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)
        return task

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                await self._flows[way].wait()
                writer.write(chunk)
                await writer.drain()
