"""The network among a cluster's nodes and before them, which can be cut between any two of them.

Every node announces ports of ours, and connects from an address of its own on loopback, by which a
link knows it. What is cut carries nothing, and all connections stay open, as where a switch has
died; what was held arrives late.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

from tests.servers.proxy import Proxy, Way
from tests.servers.replicated import ClusterNode

CLIENTS = -1  # in place of a node's number: clients, which come from elsewhere
_ADDRESSES = "127.0.77."


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
        return self._links.doors[self.number][0].port

    @property
    def shown_bus_port(self) -> int:
        """Where the other nodes are told to go."""
        return self._links.doors[self.number][1].port


class Links:
    """Everything that leads to the nodes.

    Attributes:
        nodes: those that `make` has made.
        doors: by node, for clients and for the bus.
    """

    def __init__(self) -> None:
        self.nodes: list[LinkedNode] = []
        self.doors: list[tuple[Door, Door]] = []
        self.ways: dict[Any, asyncio.Event] = defaultdict(_free)

    def make(self, folder: Path) -> LinkedNode:
        """The next node."""
        self.nodes.append(LinkedNode(folder, len(self.nodes), self))
        return self.nodes[-1]

    async def start(self) -> None:
        """Listen for all nodes; before they start."""
        for node in self.nodes:
            self.doors.append((Door(self, node, is_bus=False), Door(self, node, is_bus=True)))
        for door in chain.from_iterable(self.doors):
            await door.start()

    async def stop(self) -> None:
        """Cut everything, and listen no more."""
        for door in chain.from_iterable(self.doors):
            await door.stop()

    def cut(self, one: int, *others: int) -> None:
        """Carry nothing more between one and others, by their numbers, in either direction."""
        for other in others:
            self.ways[frozenset((one, other))].clear()

    def heal(self) -> None:
        """Carry everything, what was held first."""
        for way in self.ways.values():
            way.set()


class Door(Proxy):
    """Leads to a port of a node; what it carries depends on who comes."""

    def __init__(self, links: Links, node: LinkedNode, *, is_bus: bool) -> None:
        super().__init__(0)  # no port is known before the node starts
        self._node, self._is_bus, self._flows = node, is_bus, links.ways

    @property
    def target(self) -> int:
        """The node's own port."""
        return self._node.bus_port if self._is_bus else self._node.port

    def way_of(self, client: asyncio.StreamWriter, _way: Way) -> frozenset[int]:
        """The link between the two, in both directions."""
        source: str = client.get_extra_info("peername")[0]
        number = int(source.removeprefix(_ADDRESSES)) - 1 if _ADDRESSES in source else CLIENTS
        return frozenset((number, self._node.number))


def _free() -> asyncio.Event:
    way = asyncio.Event()
    way.set()
    return way
