"""The servers that a rig may have, and a plain client of its store."""

from __future__ import annotations

from typing import Any, TypeAlias

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as ClusterClient
from redis.retry import Retry

from groupflow.servers import RabbitmqServer, RedisServer
from tests.servers.rabbitmq_cluster import RabbitmqCluster
from tests.servers.replicated import RedisCluster

Broker: TypeAlias = RabbitmqServer | RabbitmqCluster
Store: TypeAlias = RedisServer | RedisCluster


def client_of(store: Store) -> Any:
    """A client that waits for nodes of a cluster that are just replaced."""
    if isinstance(store, RedisCluster):
        nodes: list[Any] = [ClusterNode("127.0.0.1", n.port) for n in store.nodes]  # type: ignore[no-untyped-call]
        # A node may die meanwhile, and its replica takes a moment to follow it.
        return ClusterClient(startup_nodes=nodes, retry=Retry(ConstantBackoff(0.5), 40))
    return Redis.from_url(store.url)
