"""The RabbitMQ of a soak: one server, or a cluster of which each node may die."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar, Protocol

from groupflow.servers import RabbitmqServer, ServerFailed
from tests.history.configuration import QUEUE
from tests.servers.proxy import Proxy, Way
from tests.servers.rabbitmq_cluster import RabbitmqCluster


def amqp(ports: list[int]) -> str:
    """A URL of nodes on these ports."""
    return f"amqp://guest:guest@{','.join(f'127.0.0.1:{port}' for port in ports)}/"


class Brokers(Protocol):
    """What is asked of it beside the faults that it suffers."""

    @property
    def nodes(self) -> list[RabbitmqServer]:
        """All of its nodes."""

    async def start(self) -> None:
        """Start all."""

    async def stop(self) -> None:
        """Stop all."""

    async def leader(self) -> RabbitmqServer:
        """The node that leads the queue, or any where nobody says."""


class SlowStopRabbitmq(RabbitmqServer):
    """A RabbitMQ that may take its time to stop: a kill halfway is a fault of its own."""

    stop_within: ClassVar[float] = 60.0


class OneRabbitmq:
    """A single server."""

    def __init__(self, folder: Path) -> None:
        self.nodes: list[RabbitmqServer] = [SlowStopRabbitmq(folder)]

    async def start(self) -> None:
        """Start it."""
        await self.nodes[0].start()

    async def stop(self) -> None:
        """Stop it."""
        await self.nodes[0].stop()

    async def leader(self) -> RabbitmqServer:
        """It."""
        return self.nodes[0]


class ManyRabbitmqs:
    """Three nodes, each with a copy of the queue."""

    def __init__(self, folder: Path) -> None:
        self._cluster = RabbitmqCluster(folder)
        self.nodes: list[RabbitmqServer] = [*self._cluster.nodes]

    async def start(self) -> None:
        """Start all, one after another; those that run already stay."""
        await self._cluster.start()

    async def stop(self) -> None:
        """Stop all, and what they found each other by."""
        await self._cluster.stop()

    async def leader(self) -> RabbitmqServer:
        """The node whose copy leads."""
        try:
            return await self._cluster.leader_of(QUEUE)
        except ServerFailed:  # somebody has just deleted it
            return self.nodes[0]


class Wires:
    """The network before all nodes: what happens to it happens before each."""

    def __init__(self, nodes: list[RabbitmqServer]) -> None:
        self._wires = [Proxy(node.port) for node in nodes]

    @property
    def url(self) -> str:
        """All nodes, by these wires."""
        return amqp([wire.port for wire in self._wires])

    async def start(self) -> None:
        """Listen."""
        await asyncio.gather(*(wire.start() for wire in self._wires))

    async def stop(self) -> None:
        """Cut everything and listen no more."""
        await asyncio.gather(*(wire.stop() for wire in self._wires))

    def cut(self) -> None:
        """Reset every connection."""
        for wire in self._wires:
            wire.cut()

    def hold(self, *ways: Way) -> None:
        """Carry nothing more in these directions."""
        for wire in self._wires:
            wire.hold(*ways)

    def refuse(self, *, refuse: bool) -> None:
        """Let nobody connect, or everybody again."""
        for wire in self._wires:
            wire.refuse(refuse=refuse)

    def half_open(self) -> None:
        """Reset the clients' side only."""
        for wire in self._wires:
            wire.half_open()

    def heal(self) -> None:
        """Be plain wires again."""
        for wire in self._wires:
            wire.heal()
