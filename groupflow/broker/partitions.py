"""A queue in several partitions: queues with numbers, behind an exchange that hashes routing keys.

A consistent-hash exchange gives a routing key to one of its bindings by their places in a ring,
which follow the order in which they were made. After a restart of all nodes RabbitMQ 3.10 makes
them in random order: a group's next messages would come by another queue than earlier ones, which
may still wait. So the bindings are in an exchange of their own, the *ring*, that isn't durable:
RabbitMQ forgets it with the last node, and a daemon makes it again in one order, behind a lock. The
durable exchange is bound to it, by one binding, only when it is complete. Until then RabbitMQ hands
messages back to publishers, rather than send them the wrong way.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiormq
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from pamqp.common import FieldValue

from groupflow.broker import topology
from groupflow.broker.connection import ENDED, broker_calls, close_quietly, open_channel
from groupflow.broker.topology import Presence
from groupflow.core.errors import BrokerUnavailable, ConfigError, Problem

HASH = "x-consistent-hash"
PLUGIN = "rabbitmq_consistent_hash_exchange"
WEIGHT = "1"  # of a binding, beside the others

# Else the node that the declaring daemon is connected to would lead all of them.
_SPREAD: dict[str, FieldValue] = {"x-queue-leader-locator": "balanced"}
_GAP = 8  # missing numbers one behind the other, from where on no queue is looked for
_LOCK_LOOK = 0.05  # seconds between two tries for the lock
_UNKNOWN_TYPE = "unknown exchange type"
# RabbitMQ refuses this right after checking the type, and declares nothing.
_IMPOSSIBLE: dict[str, FieldValue] = {"hash-header": "a", "hash-property": "message_id"}


def names_of(queue: str, partitions: int) -> list[str]:
    """The queues that messages come by."""
    return [queue] if partitions == 1 else [f"{queue}.{n}" for n in range(partitions)]


def ring_of(queue: str) -> str:
    """The exchange that the queues are bound to."""
    return f"{queue}.ring"


async def declare(connection: AbstractConnection, queue: str, partitions: int) -> None:
    """Declare what is missing of the queues, the exchanges and their bindings.

    A user without the right declares nothing; publishers and consumers meet the error.

    Raises:
        BrokerUnavailable: the connection has ended.
        ConfigError: RabbitMQ knows no such exchanges, for want of a plugin.
    """
    if partitions == 1:
        await topology.declare(connection, queue)
        return
    lock = await _lock(connection, queue)
    if lock is None:
        return
    await _declare_exchange(connection, queue, partitions, durable=True)
    names = sorted(names_of(queue, partitions))
    missing = [
        name for name in names if await topology.presence_of(connection, name) is Presence.MISSING
    ]
    if missing:
        with broker_calls(f"RabbitMQ did not delete the exchange {ring_of(queue)!r}"):
            await lock.exchange_delete(ring_of(queue))
    for name in missing:
        await topology.declare(connection, name, _SPREAD)
    await _declare_exchange(connection, ring_of(queue), partitions, durable=False)
    binding = await open_channel(connection, confirms=False)  # a refusal closes it
    with broker_calls(f"RabbitMQ did not bind the partitions of {queue!r}"):
        with suppress(aiormq.exceptions.ChannelAccessRefused):
            for name in names:
                await binding.queue_bind(name, ring_of(queue), routing_key=WEIGHT)
            await binding.exchange_bind(ring_of(queue), queue, routing_key=WEIGHT)
        await lock.queue_delete(_lock_of(queue))
    await close_quietly(binding.close())
    await close_quietly(lock.close())


def _lock_of(queue: str) -> str:
    return f"{queue}.lock"


async def _lock(connection: AbstractConnection, queue: str) -> AbstractChannel | None:
    """Become the only daemon that declares; ``None`` where the user may not.

    The lock is an exclusive queue: it belongs to one connection, and ends with it.
    """
    while True:
        channel = await open_channel(connection, confirms=False)
        with broker_calls(f"RabbitMQ did not let us declare the partitions of {queue!r}"):
            try:
                await channel.queue_declare(_lock_of(queue), exclusive=True, auto_delete=True)
            except aiormq.exceptions.ChannelLockedResource:
                await asyncio.sleep(_LOCK_LOOK)
            except aiormq.exceptions.ChannelAccessRefused:
                return None
            else:
                return channel


async def _declare_exchange(
    connection: AbstractConnection, name: str, partitions: int, *, durable: bool
) -> None:
    channel = await open_channel(connection, confirms=False)
    with broker_calls(f"RabbitMQ declared no exchange {name!r}"):
        try:
            await channel.exchange_declare(name, exchange_type=HASH, durable=durable)
        except aiormq.exceptions.ChannelAccessRefused:
            return
        except aiormq.exceptions.ChannelPreconditionFailed as error:
            if _UNKNOWN_TYPE in str(error):
                raise plugin_missing(partitions) from None
            remedy = f"There is an exchange {name!r} of another kind: delete it, or take its name."
            raise ConfigError([Problem("rabbitmq.queue", name, remedy)]) from None
        except ENDED as error:
            if _UNKNOWN_TYPE in str(error):  # RabbitMQ 3 ends the connection for it
                raise plugin_missing(partitions) from None
            raise
    await close_quietly(channel.close())


def plugin_missing(partitions: int) -> ConfigError:
    """What is wrong where RabbitMQ knows no such exchanges."""
    remedy = (
        "It needs a plugin of RabbitMQ that isn't enabled: run `rabbitmq-plugins enable "
        f"{PLUGIN}` on each node."
    )
    return ConfigError([Problem("rabbitmq.partitions", str(partitions), remedy)])


async def has_plugin(connection: AbstractConnection, queue: str) -> bool | None:
    """Whether RabbitMQ knows such exchanges, asked under a name that the user may declare.

    ``None`` where it doesn't say in time. It may end the connection.

    Raises:
        BrokerUnavailable: the connection has ended.
    """
    try:
        async with asyncio.timeout(topology.SILENCE):
            channel = await open_channel(connection, confirms=False)
            await channel.exchange_declare(
                queue, exchange_type=HASH, durable=True, arguments=_IMPOSSIBLE
            )
    except BrokerUnavailable:
        raise
    except aiormq.exceptions.ChannelPreconditionFailed as error:
        return _UNKNOWN_TYPE not in str(error)
    except ENDED as error:
        return False if _UNKNOWN_TYPE in str(error) else None
    return True  # it is there already, and so are exchanges of that kind


async def others_of(connection: AbstractConnection, queue: str, partitions: int) -> list[str]:
    """Queues of ours that another number of partitions has left, and that may hold messages.

    Raises:
        BrokerUnavailable: the connection has ended.
    """
    found = []
    if partitions > 1 and await topology.presence_of(connection, queue) is Presence.THERE:
        found.append(queue)
    number, missing = partitions if partitions > 1 else 0, 0
    while missing < _GAP:
        if await topology.presence_of(connection, f"{queue}.{number}") is Presence.THERE:
            found.append(f"{queue}.{number}")
            missing = 0
        else:
            missing += 1
        number += 1
    return found
