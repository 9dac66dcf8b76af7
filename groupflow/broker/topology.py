"""The shape of the queue: durable, quorum, one active consumer at a time.

Two consumers would reorder; with a single active one, the others stand by and take over. Daemons
take a queue that exists as it is, so that an operator may give it further arguments or a policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import aiormq
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from pamqp.common import FieldValue

from groupflow.broker.connection import broker_calls, close_quietly, open_channel

ARGUMENTS: dict[str, FieldValue] = {"x-queue-type": "quorum", "x-single-active-consumer": True}

NOTHING: Final[Mapping[str, FieldValue]] = MappingProxyType({})
UNLIMITED_FROM = 4  # the major version whose default delivery limit would lose messages


class Presence(Enum):
    """Whether a queue is there."""

    THERE = "there"
    MISSING = "missing"
    UNTOLD = "untold"
    """RabbitMQ doesn't tell this user: 4.2.6 and 4.3.0 want the right to configure the queue for
    that, later ones any right on it; older ones tell every user."""


async def presence_of(connection: AbstractConnection, queue: str) -> Presence:
    """Whether the queue is there. Asked on a channel of its own, since a no closes it.

    Raises:
        BrokerUnavailable: the connection has ended.
    """
    channel = await open_channel(connection, confirms=False)
    with broker_calls(f"RabbitMQ did not say whether {queue!r} exists"):
        try:
            await channel.queue_declare(queue, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity:
            return Presence.MISSING
        except aiormq.exceptions.ChannelAccessRefused:
            return Presence.UNTOLD
    await close_quietly(channel.close())
    return Presence.THERE


async def declare(
    connection: AbstractConnection, queue: str, extra: Mapping[str, FieldValue] = NOTHING
) -> None:
    """Declare the queue where it is missing, with `extra` arguments.

    Where RabbitMQ doesn't tell us, we may not declare it either; publishers and consumers meet the
    error.

    Raises:
        BrokerUnavailable: the connection has ended, or the user may not declare it.
    """
    if await presence_of(connection, queue) is not Presence.MISSING:
        return
    channel = await open_channel(connection, confirms=False)
    arguments = {**ARGUMENTS, **extra, **_unlimited_deliveries(channel)}
    with broker_calls(f"RabbitMQ declared no queue {queue!r}"):
        await channel.queue_declare(queue, durable=True, arguments=arguments)
    await close_quietly(channel.close())


async def delete(connection: AbstractConnection, queue: str) -> None:
    """Delete the queue and all its messages.

    Raises:
        BrokerUnavailable: the connection has ended, or the user may not delete it.
    """
    channel = await open_channel(connection, confirms=False)
    with broker_calls(f"RabbitMQ deleted no queue {queue!r}"):
        await channel.queue_delete(queue)
    await close_quietly(channel.close())


def _unlimited_deliveries(channel: AbstractChannel) -> dict[str, FieldValue]:
    """From 4.0 on RabbitMQ drops a message that it delivered 20 times, unless told otherwise.

    Each daemon that dies with a message unacked counts as one delivery, though the message is
    sound.
    """
    version = str(channel.connection.server_properties.get("version", ""))
    major = version.partition(".")[0]
    return {"x-delivery-limit": -1} if major.isdecimal() and int(major) >= UNLIMITED_FROM else {}
