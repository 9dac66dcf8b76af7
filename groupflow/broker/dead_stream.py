"""The stream that holds dead letters' bodies for Redis: its shape, and what doctor says of it.

It is fed by an exchange of the same name, so that the daemons' user needs no right to publish to
other queues. A stream that exists is taken as it is.
"""

from __future__ import annotations

import math
import re

import aiormq
from aio_pika.abc import AbstractConnection
from pamqp.common import FieldValue

from groupflow.broker import topology
from groupflow.broker.connection import ENDED, broker_calls, close_quietly, open_channel
from groupflow.broker.declaring import parse_difference
from groupflow.broker.topology import Presence
from groupflow.core.checkup import Check
from groupflow.core.errors import ArchiveRefused

OLDEST = (3, 9)  # the first RabbitMQ with streams
MARGIN = 7 * 86400.0
"""Seconds that the stream keeps a body beyond its letter: nobody sweeps while no daemon runs."""

CHECK = "rabbitmq.dead-stream"

_UNITS = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}
REFUSALS = (
    aiormq.exceptions.ChannelAccessRefused,  # no right to declare, bind or read it
    aiormq.exceptions.ChannelPreconditionFailed,  # a RabbitMQ without streams, or it is no stream
    aiormq.exceptions.ChannelNotFoundEntity,  # deleted a moment ago
)


def name_of(queue: str) -> str:
    return f"{queue}.dead"


def arguments_of(retention: float) -> dict[str, FieldValue]:
    """How the stream is declared.

    Args:
        retention: seconds that dead letters are kept; the stream keeps bodies for longer.
    """
    return {"x-queue-type": "stream", "x-max-age": f"{math.ceil(retention + MARGIN)}s"}


async def declare(connection: AbstractConnection, queue: str, retention: float) -> None:
    """Declare the stream and its exchange where they are missing.

    Raises:
        ArchiveRefused: this RabbitMQ has no streams, or the user may not declare this one.
        BrokerUnavailable: the connection has ended.
    """
    name = name_of(queue)
    presence = await topology.presence_of(connection, name)
    channel = await open_channel(connection, confirms=False)
    with broker_calls(f"RabbitMQ declared no stream {name!r}"):
        try:
            if presence is not Presence.THERE:
                arguments = arguments_of(retention)
                await channel.queue_declare(name, durable=True, arguments=arguments)
            await channel.exchange_declare(name, exchange_type="fanout", durable=True)
            await channel.queue_bind(name, name)
        except REFUSALS as error:
            raise ArchiveRefused(f"RabbitMQ keeps no stream {name!r} for us: {error}") from error
    await close_quietly(channel.close())


async def examine(
    connection: AbstractConnection, queue: str, version: str, retention: float
) -> Check:
    """Whether bodies of dead letters can leave Redis, and stay long enough. Nothing is declared."""
    name = name_of(queue)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    stays = "dead letters' bodies stay in Redis, beyond history.dead_memory too"
    if numbers < OLDEST:
        remedy = f"Use RabbitMQ {'.'.join(map(str, OLDEST))} or newer."
        return Check(CHECK, "warn", f"RabbitMQ {version} has no streams: {stays}", remedy)
    is_there = await topology.presence_of(connection, name) is Presence.THERE
    # An argument that is refused right behind the rights: so nothing is ever declared by this.
    wanted: dict[str, FieldValue] = {"x-queue-type": "none"}
    if is_there:
        wanted = arguments_of(retention)
    channel = await open_channel(connection, confirms=False)
    try:
        await channel.queue_declare(name, durable=True, arguments=wanted)
    except aiormq.exceptions.ChannelAccessRefused:
        remedy = "See deploy/rabbitmq/permissions.sh."
        return Check(CHECK, "warn", f"the user may not declare {name!r}: {stays}", remedy)
    except aiormq.exceptions.ChannelPreconditionFailed as error:
        if not is_there:
            return Check(
                CHECK, "ok", f"{name!r} is not there yet: it is declared when it is needed"
            )
        return _judge(name, str(error), retention)
    except ENDED as error:
        return Check(CHECK, "warn", f"RabbitMQ said nothing of {name!r}: {error}")
    await close_quietly(channel.close())
    return Check(CHECK, "ok", f"{name!r} keeps bodies for longer than history.dead_retention")


def _judge(name: str, refusal: str, retention: float) -> Check:
    """What it means that the stream is otherwise than we would declare it."""
    difference = parse_difference(refusal)
    if difference is None or difference.argument != "x-max-age":
        remedy = f"Delete the queue {name!r}, and the daemons declare it as a stream."
        return Check(CHECK, "warn", f"{name!r} is no stream of ours: {refusal}", remedy)
    kept = str(difference.current) if difference.current is not None else "ever"
    age = age_of(kept) if difference.current is not None else math.inf
    found = f"{name!r} keeps bodies for {kept}"
    if age >= retention:
        return Check(CHECK, "ok", found)
    remedy = (
        f"Set a policy with max-age {math.ceil(retention + MARGIN)}s on it, or lower the retention."
    )
    return Check(CHECK, "warn", f"{found}, less than history.dead_retention", remedy)


def age_of(text: str) -> float:
    """Seconds of an ``x-max-age`` such as ``37D``; 0 for what isn't one."""
    found = re.fullmatch(r"(\d+)([YMDhms])", text)
    return int(found[1]) * _UNITS[found[2]] if found else 0.0
