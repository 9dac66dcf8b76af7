"""What the daemons of a soak store in: one Redis, or a cluster of which each node may die."""

from __future__ import annotations

from collections import Counter
from contextlib import closing, suppress
from typing import Any, Protocol

from redis import Redis
from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as ClusterClient
from redis.exceptions import RedisClusterException, RedisError

from groupflow.servers.redis import RedisServer
from groupflow.store.keys import Keys
from groupflow.store.partitions import keys_of
from tests.history.configuration import NAMESPACE
from tests.servers.replicated import RedisCluster

PARTITIONS = 6
TIMEOUT = 2.0  # seconds


class Store(Protocol):
    """What is asked of it beside the faults that it suffers."""

    partitions: list[Keys]

    def client(self) -> Any:
        """A plain client, past all proxies."""


class OneRedis:
    """A single server."""

    def __init__(self, server: RedisServer) -> None:
        self.partitions = keys_of(NAMESPACE, 1)
        self._server = server

    def client(self) -> Any:
        """A plain client, past all proxies."""
        return Redis.from_url(
            self._server.url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT
        )


class Clustered:
    """A Redis Cluster."""

    def __init__(self, cluster: RedisCluster) -> None:
        self.partitions = keys_of(NAMESPACE, PARTITIONS)
        self._cluster = cluster

    def client(self) -> Any:
        """A plain client, made anew each time: nodes have come and gone."""
        nodes: list[Any] = [
            ClusterNode("127.0.0.1", node.port)  # type: ignore[no-untyped-call]
            for node in self._cluster.nodes
            if node.running
        ]
        return ClusterClient(
            startup_nodes=nodes, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT
        )


def counts_of(store: Store) -> dict[str, int] | None:
    """The store's own totals, of all partitions; ``None`` while one of them doesn't answer."""
    totals: Counter[str] = Counter()
    with suppress(RedisError, RedisClusterException, OSError):
        with closing(store.client()) as client:
            for keys in store.partitions:
                found: Any = client.hgetall(keys("count"))
                totals.update({name.decode(): int(total) for name, total in found.items()})
        return dict(totals)
    return None
