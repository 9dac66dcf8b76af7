"""Three RabbitMQ nodes that are one cluster, with one Erlang port mapper (epmd) among them."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from groupflow.servers.kinds import HASH_EXCHANGE
from groupflow.servers.process import ServerFailed
from groupflow.servers.server import MissingServer, PrivateServer, ask
from tests.servers.group import ServerGroup
from tests.servers.managed import MANAGEMENT, ManagedRabbitmq

_NAMES_REQUEST = b"\x00\x01n"  # epmd's NAMES_REQ
_CTL = "rabbitmqctl"


class PortMapper(PrivateServer):
    """epmd, by which Erlang's nodes find each other; a process of its own, to outlive each."""

    name: ClassVar[str] = "epmd"
    ready_within: ClassVar[float] = 20.0
    taken_marks: ClassVar[Sequence[str]] = ("in use",)

    @property
    def url(self) -> str:
        """Where nodes ask it."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """The program and its arguments."""
        found = shutil.which("epmd")
        if found is None:
            raise MissingServer(["erlang-base"])
        return [found, "-port", str(self.port), "-address", "127.0.0.1", "-relaxed_command_check"]

    async def answers(self, pid: int) -> bool:
        """Whether it answers a request for names."""
        port = (await ask(self.port, _NAMES_REQUEST))[:4]
        return int.from_bytes(port, "big") == self.port


class ClusterNode(ManagedRabbitmq):
    """One node of a cluster; it joins the first one at its first start."""

    def __init__(
        self, folder: Path, mapper: PortMapper, cookie: str, first: ClusterNode | None
    ) -> None:
        """Describe a node.

        Args:
            folder: see `PrivateServer`.
            mapper: tells it where the others are.
            cookie: the secret that the cluster's nodes share.
            first: the node to join; ``None``: none.
        """
        plugins = [HASH_EXCHANGE] if first else [HASH_EXCHANGE, MANAGEMENT]  # one node tells of all
        super().__init__(folder, plugins=plugins)
        self._mapper = mapper
        self._cookie = cookie
        self._first = first

    def environment(self) -> dict[str, str]:
        """The environment of a single node, with the cluster's port mapper."""
        arguments = super().environment()["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
        return super().environment() | {
            "ERL_EPMD_PORT": str(self._mapper.port),
            # The others give a frozen node up after five seconds.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{arguments} -kernel net_ticktime 5",
        }

    def prepare(self) -> None:
        """Write its configuration, and the cookie."""
        super().prepare()
        cookie = self.folder / ".erlang.cookie"
        cookie.unlink(missing_ok=True)
        cookie.touch(0o600)
        cookie.write_text(self._cookie)
        if self._first is not None:
            with self._path("rabbitmq.conf").open("a") as configuration:
                nodes = "cluster_formation.classic_config.nodes"
                configuration.write(
                    "cluster_formation.peer_discovery_backend = classic_config\n"
                    f"{nodes}.1 = {self._first.node}\n{nodes}.2 = {self.node}\n"
                )

    async def ctl(self, *words: str) -> str:
        """What ``rabbitmqctl`` says, asked at this node.

        Raises:
            ServerFailed: it refused; its words are shown.
        """
        program = Path(self.binary()).with_name(_CTL)
        process = await asyncio.create_subprocess_exec(
            program,
            *("--silent", *words),
            env=self.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise ServerFailed(f"rabbitmqctl {words[0]}: {said.decode(errors='replace')}")
        return said.decode()


class RabbitmqCluster(ServerGroup):
    """Some nodes, each with a copy of every quorum queue.

    Attributes:
        nodes: all of them; the first one begins.
    """

    def __init__(self, folder: Path, size: int = 3) -> None:
        """Describes it; nothing is started."""
        self._mapper = PortMapper(folder / "epmd")
        cookie = secrets.token_hex(16)
        first = ClusterNode(folder / "node-0", self._mapper, cookie, None)
        folders = [folder / f"node-{n}" for n in range(1, size)]
        joining = [ClusterNode(each, self._mapper, cookie, first) for each in folders]
        self.servers = self.nodes = [first, *joining]

    @property
    def urls(self) -> list[str]:
        """Where clients connect to, a URL for each node."""
        return [node.url for node in self.nodes]

    @property
    def url(self) -> str:
        """All nodes in one URL."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"amqp://guest:guest@{hosts}/"

    async def start(self) -> None:
        """Start what isn't running, and wait until all nodes are one cluster.

        Raises:
            ServerFailed: they did not come together.
        """
        await self._mapper.start()
        first, *others = self.nodes
        if not first.running:
            await first.start()
        for node in others:  # two nodes that join at once wait seconds for each other's lock
            await node.start()

    async def stop(self) -> None:
        """Stop all."""
        await super().stop()
        await self._mapper.stop()

    async def leader_of(self, queue: str) -> ClusterNode:
        """The node whose copy of a queue leads.

        Raises:
            ServerFailed: no node says so.
        """
        leaders = await self.leaders()
        if queue not in leaders:
            raise ServerFailed(f"no node leads {queue!r}")
        return leaders[queue]

    async def leaders(self) -> dict[str, ClusterNode]:
        """The node that leads each queue."""
        asked = next(node for node in self.nodes if node.running)
        lines = (await asked.ctl("list_queues", "--no-table-headers", "name", "leader")).split("\n")
        named = {node.node: node for node in self.nodes}
        told = [line.split("\t") for line in lines if "\t" in line]
        return {queue: named[leader] for queue, leader in told if leader in named}
