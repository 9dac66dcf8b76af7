"""The network among a cluster's nodes and before them, which can be cut between any two of them.

Every node announces ports of ours, and connects from an address of its own on loopback, by which a
link knows it. What is cut carries nothing, and all connections stay open, as where a switch has
died; what was held arrives late.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.servers.replicated import ClusterNode

CLIENTS = -1  # in place of a node's number: clients, which come from elsewhere
_ADDRESSES = "127.0.77."
_CHUNK = 65536


class LinkedNode(ClusterNode):
    """A node that others reach through ours."""

    def __init__(self, folder: Path, number: int, links: Links) -> None:
        super().__init__(folder)
        self.number = number
        self._links = links

    def command(self) -> list[str]:
        """The program and its arguments."""
        return [
            *super().command(),
            *("--bind-source-addr", f"{_ADDRESSES}{self.number + 1}"),
            *("--cluster-announce-ip", "127.0.0.1"),
            *("--cluster-announce-port", str(self.shown_port)),
            *("--cluster-announce-bus-port", str(self.shown_bus_port)),
        ]

    @property
    def shown_port(self) -> int:
        """Where clients and replicas are told to go."""
        return self._links.ports[self.number][0]

    @property
    def shown_bus_port(self) -> int:
        """Where the other nodes are told to go."""
        return self._links.ports[self.number][1]


class Links:
    """Everything that leads to the nodes.

    Attributes:
        nodes: those that `make` has made.
        ports: by node, for clients and for the bus.
    """

    def __init__(self) -> None:
        self.nodes: list[LinkedNode] = []
        self.ports: list[tuple[int, int]] = []
        self._ways: dict[frozenset[int], asyncio.Event] = defaultdict(_free)
        self._servers: list[asyncio.Server] = []
        self._carrying: set[asyncio.Task[None]] = set()

    def make(self, folder: Path) -> LinkedNode:
        """The next node."""
        self.nodes.append(LinkedNode(folder, len(self.nodes), self))
        return self.nodes[-1]

    async def start(self) -> None:
        """Listen for all nodes; before they start."""
        for node in self.nodes:
            both = [await self._listen(node, is_bus=is_bus) for is_bus in (False, True)]
            self.ports.append((both[0], both[1]))

    async def stop(self) -> None:
        """Cut everything, and listen no more."""
        for server in self._servers:
            server.close()
        for each in self._carrying:
            each.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def cut(self, one: int, *others: int) -> None:
        """Carry nothing more between one and others, by their numbers, in either direction."""
        for other in others:
            self._ways[frozenset((one, other))].clear()

    def heal(self) -> None:
        """Carry everything, what was held first."""
        for way in self._ways.values():
            way.set()

    async def _listen(self, node: LinkedNode, *, is_bus: bool) -> int:
        server = await asyncio.start_server(partial(self._accept, node, is_bus), "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _accept(
        self,
        node: LinkedNode,
        is_bus: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        source: str = writer.get_extra_info("peername")[0]
        number = int(source.removeprefix(_ADDRESSES)) - 1 if _ADDRESSES in source else CLIENTS
        way = self._ways[frozenset((number, node.number))]
        port = node.bus_port if is_bus else node.port
        task = asyncio.create_task(_serve(reader, writer, way, port))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event, port: int
) -> None:
    try:
        await way.wait()
        far, near = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(reader, near, way))
                both.create_task(_carry(far, writer, way))
        finally:
            near.transport.abort()
    except* (OSError, EOFError):
        pass
    finally:
        writer.transport.abort()


def _free() -> asyncio.Event:
    way = asyncio.Event()
    way.set()
    return way


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event
) -> None:
    """Carry one direction until it ends, which ends the other one too."""
    while chunk := await reader.read(_CHUNK):
        await way.wait()
        writer.write(chunk)
        await writer.drain()
    with suppress(OSError):
        await writer.drain()
    raise EOFError
