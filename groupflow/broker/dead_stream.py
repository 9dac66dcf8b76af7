"""The stream that holds dead letters' bodies for Redis: its shape, and what doctor says of it.

An exchange of the same name feeds it, so that the daemons' user needs no right to publish to other
queues. Daemons take a stream that exists as it is, unless it would drop bodies sooner than their
letters.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import aiormq
from aio_pika.abc import AbstractConnection
from pamqp.common import FieldValue

from groupflow.broker import topology
from groupflow.broker.connection import ENDED, broker_calls, close_quietly, open_channel
from groupflow.broker.topology import Difference, Presence
from groupflow.core.checkup import Check
from groupflow.core.errors import ArchiveRefused, BrokerUnavailable
from groupflow.settings.types import MOST_EXCHANGE

OLDEST = (3, 9)  # the first RabbitMQ with streams
MARGIN = 7 * 86400.0
"""Seconds that the stream keeps a body beyond its letter: without a daemon, none is swept."""

CHECK = "rabbitmq.dead-stream"

_HARMLESS = frozenset(  # arguments that may differ: they drop no body
    {"x-stream-max-segment-size-bytes", "x-initial-cluster-size", "x-queue-leader-locator"}
)
_UNITS = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}
_TOO_LONG = f"an exchange's name has up to {MOST_EXCHANGE} characters"
REFUSALS = (
    aiormq.exceptions.ChannelAccessRefused,  # no right to declare, bind or read it
    aiormq.exceptions.ChannelPreconditionFailed,  # a RabbitMQ without streams, or it is no stream
    aiormq.exceptions.ChannelNotFoundEntity,  # deleted a moment ago
)


def name_of(queue: str) -> str:
    return f"{queue}.dead"


def arguments_of(retention: float) -> dict[str, FieldValue]:
    """The arguments of a stream that keeps bodies for longer than `retention` (seconds)."""
    return {"x-queue-type": "stream", "x-max-age": f"{math.ceil(retention + MARGIN)}s"}


async def declare(
    connection: AbstractConnection, queue: str, retention: float, *, trusts_policy: bool = False
) -> None:
    """Declare the stream and its exchange where they are missing.

    Raises:
        ArchiveRefused: this RabbitMQ has no streams, the user may not declare this one, or it is
            there and would throw away bodies whose letters are kept.
        BrokerUnavailable: the connection has ended.
    """
    name = name_of(queue)
    if len(name) > MOST_EXCHANGE:
        raise ArchiveRefused(f"no body goes to {name!r}: {_TOO_LONG}")
    is_there = await topology.presence_of(connection, name) is Presence.THERE
    with broker_calls(f"RabbitMQ declared no stream {name!r}"):
        try:
            if is_there:
                fault = await _fault_of(connection, name, retention, trusts_policy=trusts_policy)
                if fault:
                    raise ArchiveRefused(f"no body goes to {name!r}: it {fault.found}")
            channel = await open_channel(connection, confirms=False)
            if not is_there:
                arguments = arguments_of(retention)
                await channel.queue_declare(name, durable=True, arguments=arguments)
            await channel.exchange_declare(name, exchange_type="fanout", durable=True)
            await channel.queue_bind(name, name)
        except REFUSALS as error:
            raise ArchiveRefused(f"RabbitMQ keeps no stream {name!r} for us: {error}") from error
    await close_quietly(channel.close())


async def examine(
    connection: AbstractConnection,
    queue: str,
    version: str,
    retention: float,
    *,
    trusts_policy: bool = False,
) -> Check:
    """Whether bodies of dead letters can leave Redis, and stay long enough. Nothing is declared."""
    name = name_of(queue)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    stays = "dead letters' bodies stay in Redis, beyond history.dead_memory too"
    why, remedy = "", ""
    if numbers < OLDEST:
        why = f"RabbitMQ {version} has no streams"
        remedy = f"Use RabbitMQ {'.'.join(map(str, OLDEST))} or newer."
    elif len(name) > MOST_EXCHANGE:
        why, remedy = f"{name!r}: {_TOO_LONG}", "Shorten rabbitmq.queue."
    if why:
        return Check(CHECK, "warn", f"{why}: {stays}", remedy)
    try:
        presence = await topology.presence_of(connection, name)
        if presence is Presence.SILENT:
            raise BrokerUnavailable("no answer in time")
        if presence is Presence.THERE:
            fault = await _fault_of(connection, name, retention, trusts_policy=trusts_policy)
            if fault:
                return Check(CHECK, "warn", f"{name!r} {fault.found}: {stays}", fault.remedy)
            found = f"{name!r} keeps bodies for longer than history.dead_retention"
            return Check(CHECK, "ok", f"{found}, as a policy says" if trusts_policy else found)
        channel = await open_channel(connection, confirms=False)
        # RabbitMQ refuses this argument right after checking the rights, and declares nothing.
        await channel.queue_declare(name, durable=True, arguments={"x-queue-type": "none"})
    except aiormq.exceptions.ChannelAccessRefused:
        remedy = "See deploy/rabbitmq/permissions.sh."
        return Check(CHECK, "warn", f"the user may not declare {name!r}: {stays}", remedy)
    except aiormq.exceptions.ChannelPreconditionFailed:
        pass  # as it should be
    except ENDED as error:
        return Check(CHECK, "warn", f"RabbitMQ said nothing of {name!r}: {error}")
    return Check(CHECK, "ok", f"{name!r} is not there yet: it is declared when it is needed")


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why we can't use an existing stream, to follow its name; and what to do."""

    found: str
    remedy: str


async def _fault_of(
    connection: AbstractConnection, name: str, retention: float, *, trusts_policy: bool
) -> _Fault | None:
    """What is wrong with an existing stream: how it differs from our own declaration."""
    arguments = arguments_of(retention)
    try:
        differences = await topology.differences_of(connection, name, arguments)
    except aiormq.exceptions.ChannelPreconditionFailed as error:
        differences = [Difference("", None, str(error))]
    for each in differences:
        if each.argument in _HARMLESS:
            continue
        if each.argument != "x-max-age":
            return _Fault(
                f"is no stream of ours: {each.words}",
                f"Once no letter has its body there, delete {name!r}: daemons declare it again.",
            )
        if not trusts_policy and each.current and age_of(str(each.current)) < retention:
            return _Fault(
                f"keeps bodies for {each.current!s}, less than history.dead_retention",
                f"Set a policy with max-age {arguments['x-max-age']!s} on it and "
                "history.dead_policy = true, or lower the retention.",
            )
    return None


def age_of(text: str) -> float:
    """Seconds of an ``x-max-age`` such as ``37D``; 0 for what isn't one."""
    found = re.fullmatch(r"(\d+)([YMDhms])", text)
    return int(found[1]) * _UNITS[found[2]] if found else 0.0
