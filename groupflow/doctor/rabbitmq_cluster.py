"""Whether the nodes are one cluster, and messages reach all partitions of a queue.

AMQP tells whether nodes answer, their cluster's name, and which queues and exchanges exist. It
doesn't tell the bindings, nor which node leads a queue: `rabbitmq_management` asks that.
"""

from __future__ import annotations

import asyncio

import aiormq
from aio_pika.abc import AbstractConnection

from groupflow.broker import partitions as broker
from groupflow.broker.connection import (
    ENDED,
    address_of,
    close_quietly,
    connect,
    nodes_of,
    open_channel,
)
from groupflow.core.checkup import Check
from groupflow.core.errors import BrokerUnavailable, ServerUnreachable

NODES = "rabbitmq.nodes"
PLUGIN = "rabbitmq.plugin"
PARTITIONS = "rabbitmq.partitions"


async def examine_nodes(url: str, timeout: float) -> list[Check]:
    """Whether all nodes of a URL answer, and are of one cluster; nothing where there is one.

    Args:
        url: of all nodes.
        timeout: seconds for each one's handshake.
    """
    nodes = nodes_of(url)
    if len(nodes) == 1:
        return []
    told = await asyncio.gather(*(_cluster_of(node, timeout) for node in nodes))
    remedy = "While it is away connections go to the others. Is it running, and in rabbitmq.url?"
    checks = [
        Check(NODES, "warn", str(each), remedy) for each in told if isinstance(each, Exception)
    ]
    clusters = {
        address_of(node): cluster
        for node, cluster in zip(nodes, told, strict=True)
        if isinstance(cluster, str)
    }
    if len(set(clusters.values())) > 1:
        found = "they are of different clusters: " + ", ".join(
            f"{address} of {cluster!r}" for address, cluster in clusters.items()
        )
        remedy = "Messages are in one of them alone: name the nodes of one cluster."
        return [*checks, Check(NODES, "fail", found, remedy)]
    if not checks:
        checks.append(Check(NODES, "ok", f"all {len(nodes)} answer, and are of one cluster"))
    return checks


async def _cluster_of(node: str, timeout: float) -> str | Exception:
    """The name of a node's cluster, or the error."""
    try:
        connection = await connect(node, heartbeat=10, timeout=timeout, name="groupflow doctor")
    except (BrokerUnavailable, ServerUnreachable) as error:
        return error
    try:
        channel = await open_channel(connection, confirms=False)
        return str(channel.connection.server_properties.get("cluster_name", ""))
    except BrokerUnavailable as error:
        return error
    finally:
        await close_quietly(connection.close())


async def examine_partitions(
    connection: AbstractConnection, queue: str, partitions: int
) -> list[Check]:
    """Whether published messages reach the queues that are consumed.

    Raises:
        BrokerUnavailable: the connection has ended.
    """
    checks = []
    if others := await broker.others_of(connection, queue, partitions):
        remedy = (
            "Daemons that start consume them as well. Once they are empty, and nobody publishes to "
            "them, delete them; or set rabbitmq.partitions to what it was."
        )
        found = f"{', '.join(others)}: of another number of partitions than {partitions}"
        checks.append(Check(PARTITIONS, "warn", found, remedy))
    if partitions == 1:
        return checks
    missing = [
        name for name in (queue, broker.ring_of(queue)) if not await _is_exchange(connection, name)
    ]
    if missing:
        found = (
            f"no exchange {' nor '.join(map(repr, missing))}: what is published to {queue!r} is "
            "handed back until a daemon, or `groupflow publish`, declares it"
        )
        checks.append(Check(PARTITIONS, "ok", found))
    else:
        checks.append(Check(PARTITIONS, "ok", f"{partitions} queues behind {queue!r}"))
    return checks


async def _is_exchange(connection: AbstractConnection, name: str) -> bool:
    channel = await open_channel(connection, confirms=False)
    try:
        await channel.exchange_declare(name, passive=True)
    except aiormq.exceptions.ChannelNotFoundEntity:
        return False
    except ENDED:
        return True  # the user isn't told
    await close_quietly(channel.close())
    return True


async def examine_plugin(connection: AbstractConnection, queue: str, partitions: int) -> Check:
    """Whether RabbitMQ knows exchanges that hash; may end the connection."""
    has_plugin = await broker.has_plugin(connection, queue)
    if has_plugin is None:
        return Check(PLUGIN, "warn", f"RabbitMQ did not say whether it has {broker.PLUGIN}")
    if has_plugin:
        return Check(PLUGIN, "ok", f"{broker.PLUGIN} is enabled")
    [problem] = broker.plugin_missing(partitions).problems
    return Check(PLUGIN, "fail", f"{broker.PLUGIN} is not enabled", problem.remedy)
