"""The shape of the queue: durable, quorum, one active consumer at a time.

Two consumers would reorder; with a single active one, the others stand by and take over. A queue
that exists is taken as it is, so that an operator may give it further arguments or a policy.
"""

from __future__ import annotations

import aiormq
from aio_pika.abc import AbstractConnection
from pamqp.common import FieldValue

from groupflow.broker.connection import ENDED, open_channel
from groupflow.core.errors import BrokerUnavailable

ARGUMENTS: dict[str, FieldValue] = {"x-queue-type": "quorum", "x-single-active-consumer": True}


async def exists(connection: AbstractConnection, queue: str) -> bool:
    """Whether the queue is there. Asked on a channel of its own, since a no closes it.

    Raises:
        BrokerUnavailable: the connection has ended.
    """
    channel = await open_channel(connection, confirms=False)
    try:
        await channel.queue_declare(queue, passive=True)
    except aiormq.exceptions.ChannelNotFoundEntity:
        return False
    except ENDED as error:
        raise BrokerUnavailable(
            f"RabbitMQ did not say whether {queue!r} exists: {error}"
        ) from error
    await channel.close()
    return True


async def declare(connection: AbstractConnection, queue: str) -> None:
    """Declare the queue where it is missing.

    Raises:
        BrokerUnavailable: the connection has ended, or the user may not declare it.
    """
    if await exists(connection, queue):
        return
    channel = await open_channel(connection, confirms=False)
    try:
        await channel.queue_declare(queue, durable=True, arguments=ARGUMENTS)
        await channel.close()
    except ENDED as error:
        raise BrokerUnavailable(f"RabbitMQ declared no queue {queue!r}: {error}") from error


async def delete(connection: AbstractConnection, queue: str) -> None:
    """Delete the queue and whatever is in it.

    Raises:
        BrokerUnavailable: the connection has ended, or the user may not delete it.
    """
    channel = await open_channel(connection, confirms=False)
    try:
        await channel.queue_delete(queue)
        await channel.close()
    except ENDED as error:
        raise BrokerUnavailable(f"RabbitMQ deleted no queue {queue!r}: {error}") from error
