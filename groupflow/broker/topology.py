"""The shape of the queue: durable, quorum, one active consumer at a time.

Two consumers would reorder; with a single active one, the others stand by and take over. Daemons
take a queue that exists as it is, so that an operator may give it further arguments or a policy.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

import aiormq
from aio_pika.abc import AbstractConnection
from pamqp.common import FieldValue

from groupflow.broker.connection import broker_calls, close_quietly, open_channel

_DIFFERS = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' .*?: "
    r"received (?P<received>.+?) but current is (?P<current>.+?)\s*$",
    re.DOTALL,
)
_VALUE = re.compile(r"(?:the value )?'(?P<text>[^']*)'(?: of type '(?P<type>[^']*)')?")
_MOST_DIFFERENCES = 12
_NUMBERS = {"byte", "short", "signedint", "unsignedint", "long", "unsignedbyte", "unsignedshort"}


@dataclass(frozen=True, slots=True)
class Difference:
    """An argument of a queue that differs from our declaration."""

    argument: str  # `durable`, `x-queue-type` and the like
    current: FieldValue  # what the queue has; None where it has nothing
    words: str = field(default="", compare=False)  # RabbitMQ's own


def parse_difference(text: str) -> Difference | None:
    """The difference in the words of a refused declaration; ``None`` where they tell none."""
    found = _DIFFERS.search(text)
    if found is None:
        return None
    argument, value = found["argument"], _VALUE.match(found["current"])
    current: FieldValue = value and value["text"]
    if value is None:  # "none", which for the type is the oldest one
        current = "classic" if argument == "x-queue-type" else None
    elif value["text"] in ("true", "false"):
        current = value["text"] == "true"
    elif value["type"] in _NUMBERS and value["text"].lstrip("-").isdecimal():
        current = int(value["text"])
    return Difference(argument, current, text)


ARGUMENTS: dict[str, FieldValue] = {"x-queue-type": "quorum", "x-single-active-consumer": True}

NOTHING: Final[Mapping[str, FieldValue]] = MappingProxyType({})
SILENCE = 20.0  # seconds for a word on a queue; an intake waits for less, so that it says more
UNLIMITED_FROM = 4  # the major version whose default delivery limit would lose messages


class Presence(Enum):
    """Whether a queue is there."""

    THERE = "there"
    MISSING = "missing"
    UNTOLD = "untold"
    """RabbitMQ doesn't tell this user: 4.2.6 and 4.3.0 want the right to configure the queue for
    that, later ones any right on it; older ones tell every user."""
    SILENT = "silent"
    """It never answers for a queue whose process is stuck, say."""


async def presence_of(connection: AbstractConnection, queue: str) -> Presence:
    """Whether the queue is there. Asked on a channel of its own, since a no closes it.

    Raises:
        BrokerUnavailable: the connection has ended.
    """
    channel = await open_channel(connection, confirms=False)
    with broker_calls(f"RabbitMQ did not say whether {queue!r} exists"):
        try:
            async with asyncio.timeout(SILENCE):
                await channel.queue_declare(queue, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity:
            return Presence.MISSING
        except aiormq.exceptions.ChannelAccessRefused:
            return Presence.UNTOLD
        except TimeoutError:
            return Presence.SILENT
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
    version = str(channel.connection.server_properties.get("version", ""))
    arguments = {**ARGUMENTS, **extra, **unlimited_deliveries(version)}
    with broker_calls(f"RabbitMQ declared no queue {queue!r}"):
        await channel.queue_declare(queue, durable=True, arguments=arguments)
    await close_quietly(channel.close())


async def differences_of(
    connection: AbstractConnection, queue: str, arguments: Mapping[str, FieldValue]
) -> list[Difference]:
    """How a queue that exists differs from a declaration. This declares nothing.

    RabbitMQ refuses a declaration that differs, and names the first difference. So declaring again
    with that one corrected brings out the next.

    Raises:
        aiormq.exceptions.AMQPError: a refusal that names no difference.
    """
    wanted: dict[str, Any] = {"durable": True, "arguments": dict(arguments)}
    found: list[Difference] = []
    while len(found) < _MOST_DIFFERENCES:
        channel = await open_channel(connection, confirms=False)
        try:
            await channel.queue_declare(queue, **wanted)
        except aiormq.exceptions.ChannelPreconditionFailed as error:
            difference = parse_difference(str(error))
            if difference is None:
                raise
            if difference in found:  # declaring it so doesn't correct it
                break
            found.append(difference)
            if difference.argument == "durable":
                wanted["durable"] = bool(difference.current)
            elif difference.current is None:
                wanted["arguments"].pop(difference.argument, None)
            else:
                wanted["arguments"][difference.argument] = difference.current
        else:
            await close_quietly(channel.close())
            break
    return found


async def delete(connection: AbstractConnection, queue: str) -> None:
    """Delete the queue and all its messages.

    Raises:
        BrokerUnavailable: the connection has ended, or the user may not delete it.
    """
    channel = await open_channel(connection, confirms=False)
    with broker_calls(f"RabbitMQ deleted no queue {queue!r}"):
        await channel.queue_delete(queue)
    await close_quietly(channel.close())


def unlimited_deliveries(version: str) -> dict[str, FieldValue]:
    """From 4.0 on RabbitMQ drops a message that it delivered 20 times, unless told otherwise.

    Each daemon that dies with a message unacked counts as one delivery, though the message is
    sound.
    """
    major = version.partition(".")[0]
    return {"x-delivery-limit": -1} if major.isdecimal() and int(major) >= UNLIMITED_FROM else {}
