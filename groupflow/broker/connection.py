"""Connections to RabbitMQ: opened plainly, with our errors, and never reopened behind our back.

aio-pika's self-restoring connection would declare a deleted queue again, empty and in silence, and
goes on delivering while its caller still holds messages of the old connection. Here a connection
lives for one *term*: when it ends, the term ends, and whoever wants another one opens it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import aio_pika
import aiormq
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from yarl import URL

from groupflow.core.errors import BrokerUnavailable, ServerUnreachable

# What aiormq raises where a connection or channel has ended, beside its own errors.
ENDED = (aiormq.exceptions.AMQPError, OSError, TimeoutError, RuntimeError)

_REFUSED = (
    aiormq.exceptions.AuthenticationError,
    aiormq.exceptions.ProbableAuthenticationError,
)


def address_of(url: str) -> str:
    """Host and port of a broker's URL, which is all that may be shown of it."""
    return urlsplit(url).netloc.rpartition("@")[2]


async def connect(url: str, *, heartbeat: int, timeout: float, name: str) -> AbstractConnection:
    """Open a connection.

    Args:
        url: ``amqp://`` or ``amqps://``.
        heartbeat: seconds; a dead peer is noticed after about three times as many.
        timeout: seconds for the whole handshake.
        name: shown on RabbitMQ's own page.

    Raises:
        BrokerUnavailable: no answer; try again.
        ServerUnreachable: it answered, and refused the user or the virtual host.
    """
    address = address_of(url)
    target = URL(url).update_query(heartbeat=heartbeat)
    try:
        return await aio_pika.connect(
            target, timeout=timeout, client_properties={"connection_name": name}
        )
    except _REFUSED as error:
        raise ServerUnreachable("RabbitMQ", address, "it refused the credentials") from error
    except ENDED as error:
        cause = str(error) or type(error).__name__
        raise BrokerUnavailable(f"RabbitMQ at {address} can't be reached: {cause}") from error


async def open_channel(connection: AbstractConnection, *, confirms: bool) -> AbstractChannel:
    """A channel, at the level where deliveries and acks are plain frames.

    Raises:
        BrokerUnavailable: the connection has ended.
    """
    try:
        channel = await connection.channel(publisher_confirms=confirms)
        return await channel.get_underlay_channel()
    except ENDED as error:
        raise BrokerUnavailable(f"RabbitMQ opened no channel: {error}") from error
