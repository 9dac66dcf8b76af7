"""Several Redis processes as one: a Redis Cluster, or a primary that Sentinels watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from groupflow.core.errors import StoreUnavailable
from groupflow.servers.kinds import RedisServer
from groupflow.servers.process import ServerFailed
from groupflow.servers.server import ask
from tests import deadlines
from tests.servers.group import ServerGroup

NODE_TIMEOUT = 1_000  # milliseconds of silence after which a primary is replaced
SLOTS = 16_384

_Answer = TypeVar("_Answer")


class ClusterNode(RedisServer):
    """One node, with a bus port of its own choice."""

    port_count: ClassVar[int] = 2

    def command(self) -> list[str]:
        """The program and its arguments."""
        return [
            *super().command(),
            *("--cluster-enabled", "yes", "--cluster-port", str(self._ports[1])),
            *("--cluster-node-timeout", str(NODE_TIMEOUT)),
            # A node that was away for long may lead all the same: there is no other.
            *("--cluster-replica-validity-factor", "0"),
            *("--repl-diskless-sync-delay", "0"),
            # Serve the other slots where no node serves some.
            *("--cluster-require-full-coverage", "no"),
        ]

    @property
    def bus_port(self) -> int:
        """The port at which the other nodes reach it."""
        return self._ports[1]

    @property
    def shown_port(self) -> int:
        """The port that it announces to clients and replicas."""
        return self.port

    @property
    def shown_bus_port(self) -> int:
        """The bus port that it announces to the other nodes."""
        return self.bus_port


class Sentinel(RedisServer):
    """One Sentinel."""

    name: ClassVar[str] = "Redis Sentinel"

    def __init__(self, folder: Path, primary: str, port: int, quorum: int) -> None:
        """Watches a primary, under a name, at a port of this machine."""
        super().__init__(folder)
        self._watched = primary, port, quorum

    def prepare(self) -> None:
        """Write its configuration, which it rewrites itself; a new one only at its first start."""
        name, port, quorum = self._watched
        file = self.folder / "sentinel.conf"
        if not file.exists():
            file.write_text(
                f"sentinel monitor {name} 127.0.0.1 {port} {quorum}\n"
                f"sentinel down-after-milliseconds {name} {NODE_TIMEOUT}\n"
                f"sentinel failover-timeout {name} 4000\n"
            )

    def command(self) -> list[str]:
        """The program and its arguments."""
        file = str(self.folder / "sentinel.conf")
        ports = ("--port", str(self.port), "--bind", "127.0.0.1")
        return [self.binary(), file, "--sentinel", *ports, "--dir", str(self.folder)]

    async def answers(self, pid: int) -> bool:
        """Whether it is this process that answers."""
        return f"process_id:{pid}\r" in await command(self, "INFO server")


class RedisCluster(ServerGroup):
    """A Redis Cluster: some primaries that share the slots, each with some replicas."""

    servers: Sequence[RedisServer]

    def __init__(
        self,
        folder: Path,
        primaries: int = 3,
        replicas: int = 1,
        *,
        make: Callable[[Path], ClusterNode] = ClusterNode,
    ) -> None:
        """Describes it; nothing is started. `make` makes a node, given its folder."""
        count = primaries * (1 + replicas)
        self.nodes = [make(folder / f"node-{n}") for n in range(count)]
        self.primaries, self.replicas = self.nodes[:primaries], self.nodes[primaries:]
        self.servers = self.nodes

    @property
    def url(self) -> str:
        """All nodes."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{each.shown_port}' for each in self.nodes)}"

    async def start(self) -> None:
        """Start all nodes, share out the slots, and wait until every node sees all of it."""
        await super().start()
        first, *others = self.nodes
        ids = {node: (await command(node, "CLUSTER MYID")) for node in self.nodes}
        for n, node in enumerate(self.primaries):
            low = SLOTS * n // len(self.primaries)
            high = SLOTS * (n + 1) // len(self.primaries) - 1
            await command(node, f"CLUSTER ADDSLOTSRANGE {low} {high}")
            await command(node, f"CLUSTER SET-CONFIG-EPOCH {n + 1}")
        for node in others:
            await command(first, f"CLUSTER MEET 127.0.0.1 {node.shown_port} {node.shown_bus_port}")
        await until(self._all_know_each_other, "nodes did not meet")
        for n, replica in enumerate(self.replicas):
            id_ = ids[self.primaries[n % len(self.primaries)]]
            await until(partial(_is_ok, replica, f"CLUSTER REPLICATE {id_}"), "no replica")
        await until(self.is_whole, "it did not come together")

    async def _all_know_each_other(self) -> bool:
        known = [await command(node, "CLUSTER NODES") for node in self.servers]
        return all(text.count("connected") == len(self.servers) for text in known)

    async def is_whole(self) -> bool:
        """Whether every node sees all slots served, and each primary has its replicas."""
        for node in self.servers:
            said = await command(node, "CLUSTER INFO")
            if "cluster_state:ok" not in said or f"cluster_slots_ok:{SLOTS}\r" not in said:
                return False
        followers = len(self.replicas) // len(self.primaries)
        for node in self.servers:
            said = await command(node, "INFO replication")
            is_primary = "role:master" in said
            if is_primary and said.count("state=online") != followers:
                return False
            if not is_primary and "master_link_status:up" not in said:
                return False
        return True

    async def leader_of(self, key: str) -> ClusterNode:
        """The node that has a key's slot."""
        for node in self.nodes:
            if node.running and await command(node, f"EXISTS {key}") in ("0", "1"):
                return node
        raise ServerFailed(f"no node of the cluster has the slot of {key}")

    async def replica_of(self, leader: ClusterNode) -> ClusterNode:
        """A node that follows another one.

        Raises:
            ServerFailed: none does.
        """
        for node in self.nodes:
            if node.running and f"master_port:{leader.shown_port}\r" in await command(
                node, "INFO replication"
            ):
                return node
        raise ServerFailed(f"the node at port {leader.port} has no replica")

    async def leaders(self) -> list[ClusterNode]:
        """The current primaries."""
        return [node for node in self.nodes if node.running and await leads(node)]


class WatchedRedis(ServerGroup):
    """A primary, its replicas, and Sentinels that watch them."""

    primary = "mymaster"

    def __init__(self, folder: Path, replicas: int = 2, sentinels: int = 3) -> None:
        """Describes it; nothing is started."""
        self._folder = folder
        extra = ("--repl-diskless-sync-delay", "0")
        self.nodes = [RedisServer(folder / f"redis-{n}", extra=extra) for n in range(1 + replicas)]
        self.sentinels: list[Sentinel] = []
        self._count = sentinels
        self.servers = self.nodes

    @property
    def url(self) -> str:
        """All Sentinels, and the name of the primary."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.primary}/0"

    async def start(self) -> None:
        """Start all; wait until replicas follow, and each Sentinel knows all others."""
        await super().start()
        first, *others = self.nodes
        for node in others:
            await command(node, f"REPLICAOF 127.0.0.1 {first.port}")
        quorum = self._count // 2 + 1
        self.sentinels = [
            Sentinel(self._folder / f"sentinel-{n}", self.primary, first.port, quorum)
            for n in range(self._count)
        ]
        self.servers = [*self.nodes, *self.sentinels]
        await asyncio.gather(*(each.start() for each in self.sentinels))
        await until(self.is_whole, "Sentinels did not find each other")

    async def is_whole(self) -> bool:
        """Whether all replicas follow, and every Sentinel knows them and the others."""
        for each in self.nodes[1:]:
            if "master_link_status:up" not in await command(each, "INFO replication"):
                return False
        wanted = f"slaves={len(self.nodes) - 1},sentinels={self._count}"
        for each in self.sentinels:
            said = await command(each, "INFO sentinel")
            if f"status=ok,address=127.0.0.1:{self.nodes[0].port},{wanted}" not in said:
                return False
        return True


async def command(server: RedisServer, words: str) -> str:
    """Ask a node one thing in Redis's inline protocol; the answer without its type's mark."""
    # A Sentinel knows no QUIT, so the answer ends where that of a PING begins.
    reply = await ask(server.port, f"{words}\r\nPING\r\n".encode(), until=b"+PONG\r\n")
    first, _, rest = reply.decode(errors="replace").partition("\r\n")
    if first.startswith("$"):
        return rest[: int(first[1:])] if first != "$-1" else ""
    return first[1:]


async def leads(server: RedisServer) -> bool:
    """Whether a server takes itself for a primary."""
    try:
        return "role:master" in await command(server, "INFO replication")
    except ConnectionError:  # Sentinel cuts the connections of one that it promotes
        return False


async def _is_ok(server: RedisServer, words: str) -> bool:
    return await command(server, words) == "OK"


async def until(condition: Callable[[], Awaitable[bool]], complaint: str) -> None:
    """Wait for something that servers, or others beside the test, do by themselves.

    Raises:
        ServerFailed: it did not come in time.
    """
    try:
        await deadlines.until(condition, look=0.05)
    except TimeoutError:
        raise ServerFailed(complaint) from None


async def persist(call: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """Call until a server answers, and has enough replicas."""
    answers: list[_Answer] = []

    async def has_answered() -> bool:
        with suppress(StoreUnavailable):
            answers.append(await call())
        return bool(answers)

    await until(has_answered, "no server answers")
    return answers[0]
