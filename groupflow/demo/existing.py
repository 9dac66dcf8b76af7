"""Servers that the user has already: checked before the demo, and left as they were after it."""

from __future__ import annotations

from contextlib import suppress

from groupflow.broker import topology
from groupflow.broker.connection import address_of, connect
from groupflow.core.errors import (
    BrokerUnavailable,
    GroupflowError,
    ServerUnreachable,
    StoreUnavailable,
)
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys

_TIMEOUT = 5.0  # seconds for a connection and for each answer


async def check_rabbitmq(url: str) -> None:
    """Make sure that RabbitMQ answers.

    Raises:
        ServerUnreachable: it does not.
    """
    try:
        connection = await connect(url, heartbeat=10, timeout=_TIMEOUT, name="groupflow demo")
    except BrokerUnavailable as error:
        cause = str(error.__cause__ or error)
        raise ServerUnreachable("RabbitMQ", address_of(url), cause) from None
    await connection.close()


async def check_redis(url: str, namespace: str) -> None:
    """Make sure that Redis answers.

    Raises:
        ServerUnreachable: it does not.
    """
    keys = Keys(namespace)
    client = StoreClient(url, keys, timeout=_TIMEOUT)
    try:
        await client.ping()
    except StoreUnavailable as error:
        cause = str(error.__cause__ or error)
        raise ServerUnreachable("Redis", client.address, cause) from None
    finally:
        await client.close()


async def delete_queue(url: str, queue: str) -> None:
    """Delete the demo's own queue; if RabbitMQ is gone by now, so be it."""
    with suppress(GroupflowError):
        connection = await connect(url, heartbeat=10, timeout=_TIMEOUT, name="groupflow demo")
        try:
            await topology.delete(connection, queue)
        finally:
            await connection.close()


async def erase_keys(url: str, namespace: str) -> None:
    """Delete the demo's own keys; if Redis is gone by now, so be it."""
    keys = Keys(namespace)
    client = StoreClient(url, keys, timeout=_TIMEOUT)
    with suppress(GroupflowError):
        await client.erase_namespace()
    await client.close()
