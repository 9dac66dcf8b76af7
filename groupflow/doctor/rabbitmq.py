"""Whether RabbitMQ is fit: its version, the queue as it was declared, rights, alarms.

Over AMQP alone. RabbitMQ refuses a declaration that differs from the queue, and names the first
difference. So declaring again with that one corrected brings out the next; this changes nothing. A
missing queue is never declared here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import uuid4

import aiormq
from aio_pika.abc import AbstractConnection
from pamqp.common import FieldValue

from groupflow.broker import dead_stream, topology
from groupflow.broker.connection import ENDED, connect, open_channel
from groupflow.broker.declaring import Difference, parse_difference
from groupflow.broker.partitions import names_of
from groupflow.broker.topology import Presence
from groupflow.core.checkup import Check, Verdict
from groupflow.doctor.rabbitmq_cluster import examine_nodes, examine_partitions, examine_plugin
from groupflow.doctor.rabbitmq_management import UNTOLD, examine_management

OLDEST = (3, 8)  # the first with quorum queues
CONFIRM_WITHIN = 2.0  # seconds; an alarm lets no confirm come at all
QUEUE = "rabbitmq.queue"

_MOST_DIFFERENCES = 12
_RIGHTS_REMEDY = "See deploy/rabbitmq/permissions.sh."
_ANEW = (
    "An argument can't be changed: stop the publishers, let the queue run empty, delete it and let "
    "`groupflow run` declare it (or declare one under another name)."
)

_MEANINGS: dict[str, tuple[Verdict, str]] = {
    "durable": ("fail", "a restart of RabbitMQ loses it and its messages"),
    "x-single-active-consumer": ("fail", "two daemons consume at once and mix up the order"),
    "x-queue-type": ("warn", "its messages are on one node only, and are lost with its disk"),
    "x-message-ttl": ("fail", "messages that wait too long are lost"),
    "x-expires": ("fail", "unused for so long, it is deleted with its messages"),
    "x-max-length": ("fail", "what is over it is dropped from the head"),
    "x-max-length-bytes": ("fail", "what is over it is dropped from the head"),
    "x-max-priority": ("warn", "priorities change the order in which messages come"),
}


async def examine_broker(
    url: str,
    queue: str,
    timeout: float,
    dead_retention: float,
    *,
    partitions: int = 1,
    trusts_policy: bool = False,
    management: str = "",
) -> list[Check]:
    """Everything about one RabbitMQ, as the user of the URL sees it; times are in seconds.

    Args:
        url: the server's.
        queue: which is consumed.
        partitions: in how many.
        timeout: seconds for the handshake.
        dead_retention: seconds that dead letters are kept.
        trusts_policy: whether a policy is said to keep their bodies for long enough.
        management: the URL of its management API; empty where it isn't configured.

    Raises:
        BrokerUnavailable: no answer.
        ServerUnreachable: it refused the credentials.
    """
    connection = await connect(url, heartbeat=10, timeout=timeout, name="groupflow doctor")
    try:
        version = await _version_of(connection)
        checks = [_judge_version(version), *await examine_nodes(url, timeout)]
        for name in names_of(queue, partitions):
            checks += await _examine_one(connection, name, version)
        checks += await examine_partitions(connection, queue, partitions)
        if management:
            checks += await examine_management(management, url, queue, partitions, timeout)
        elif partitions > 1:
            checks.append(UNTOLD)
        checks.append(
            await dead_stream.examine(
                connection, queue, version, dead_retention, trusts_policy=trusts_policy
            )
        )
        checks.append(await _examine_publishing(connection))
        if partitions > 1:  # last, since RabbitMQ 3 ends the connection where it is missing
            checks.append(await examine_plugin(connection, queue, partitions))
        return checks
    finally:
        with suppress(*ENDED):
            await connection.close()


async def _examine_one(connection: AbstractConnection, queue: str, version: str) -> list[Check]:
    presence = await topology.presence_of(connection, queue)
    if presence is Presence.MISSING:
        found = f"{queue!r} is not there yet: `groupflow run` or `publish` declares it"
        return [Check(QUEUE, "ok", found)]
    checks = await _examine_queue(connection, queue, version, presence)
    return [*checks, await _examine_reading(connection, queue)]


async def _version_of(connection: AbstractConnection) -> str:
    channel = await open_channel(connection, confirms=False)
    version = str(channel.connection.server_properties.get("version", ""))
    await channel.close()
    return version


def _judge_version(version: str) -> Check:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    oldest = ".".join(map(str, OLDEST))
    if not numbers:
        return Check("rabbitmq.version", "warn", "it doesn't say its version", "Is it RabbitMQ?")
    if numbers < OLDEST:
        return Check("rabbitmq.version", "fail", f"RabbitMQ {version}", f"Use {oldest} or newer.")
    return Check("rabbitmq.version", "ok", f"RabbitMQ {version}")


async def _examine_queue(
    connection: AbstractConnection, queue: str, version: str, presence: Presence
) -> list[Check]:
    if presence is Presence.UNTOLD:
        found = f"{queue!r} can't be checked without the right to configure it (RabbitMQ {version})"
        return [Check(QUEUE, "warn", found, _RIGHTS_REMEDY)]
    wanted: dict[str, FieldValue] = dict(topology.ARGUMENTS)
    major = version.partition(".")[0]
    unlimited = major.isdecimal() and int(major) >= topology.UNLIMITED_FROM
    if unlimited:
        wanted["x-delivery-limit"] = -1
    durable = True
    differences: list[Difference] = []
    while len(differences) < _MOST_DIFFERENCES:
        try:
            difference = await _declare(connection, queue, durable=durable, arguments=wanted)
        except aiormq.exceptions.ChannelAccessRefused:
            found = f"{queue!r} is there; the user may not declare it, so its arguments stay unseen"
            return [Check(QUEUE, "warn", found, _RIGHTS_REMEDY)]
        except ENDED as error:
            return [Check(QUEUE, "warn", f"RabbitMQ said nothing of {queue!r}: {error}")]
        if difference is None:
            break
        if difference in differences:  # declaring it so doesn't correct it
            break
        differences.append(difference)
        if difference.argument == "durable":
            durable = bool(difference.current)
        elif difference.current is None:
            wanted.pop(difference.argument, None)
        else:
            wanted[difference.argument] = difference.current
    return [*judge_queue(queue, differences), *_judge_deliveries(differences, unlimited)]


async def _declare(
    connection: AbstractConnection, queue: str, *, durable: bool, arguments: dict[str, FieldValue]
) -> Difference | None:
    """Declare the queue with these arguments; the first difference, if any."""
    channel = await open_channel(connection, confirms=False)
    try:
        await channel.queue_declare(queue, durable=durable, arguments=arguments)
    except aiormq.exceptions.ChannelPreconditionFailed as error:
        difference = parse_difference(str(error))
        if difference is None:
            raise
        return difference
    await channel.close()
    return None


def judge_queue(queue: str, differences: list[Difference]) -> list[Check]:
    checks = [
        Check(QUEUE, *verdict)
        for difference in differences
        if difference.argument not in ("x-delivery-limit", "x-queue-leader-locator")
        for verdict in [_judge_difference(queue, difference, differences)]
    ]
    if checks:
        return checks
    return [Check(QUEUE, "ok", f"{queue!r}: durable, quorum, single active consumer")]


def _judge_difference(
    queue: str, difference: Difference, all_of_them: list[Difference]
) -> tuple[Verdict, str, str]:
    what = f"{queue!r} has {difference.argument} = {_text(difference.current)}"
    overflow = next((d.current for d in all_of_them if d.argument == "x-overflow"), None)
    if difference.argument.startswith("x-max-length") and overflow == "reject-publish":
        return "ok", f"{what}, and refuses what is over it", ""
    if difference.argument == "x-queue-type" and difference.current == "stream":
        return "fail", f"{what}: a stream hands its messages out again and again", _ANEW
    if difference.argument not in _MEANINGS:
        return "ok", what, ""
    verdict, meaning = _MEANINGS[difference.argument]
    return verdict, f"{what}: {meaning}", _ANEW


def _judge_deliveries(differences: list[Difference], limited_by_default: bool) -> list[Check]:
    name = "rabbitmq.delivery-limit"
    found = next((d for d in differences if d.argument == "x-delivery-limit"), None)
    dead_letters = any(d.argument == "x-dead-letter-exchange" for d in differences)
    limit = found.current if found else None
    if limit is None and not (found and limited_by_default):
        note = "none: a message comes again however often daemons die with it"
        return [Check(name, "ok", note)]
    bound = "the default of 20" if limit is None else _text(limit)
    then = "goes to its dead-letter exchange" if dead_letters else "is dropped"
    return [
        Check(
            name,
            "warn",
            f"{bound}: a message that so many daemons died with, or lost their connection, {then}",
            f"Declare the queue with x-delivery-limit = -1. {_ANEW}",
        )
    ]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _examine_reading(connection: AbstractConnection, queue: str) -> Check:
    """Whether the user may consume: tried with an argument that RabbitMQ refuses after the rights.

    So no consumer ever starts, and no message is touched.
    """
    name = "rabbitmq.reading"
    channel = await open_channel(connection, confirms=False)
    try:
        await channel.basic_consume(queue, _no_message, arguments={"x-priority": "doctor"})
    except aiormq.exceptions.ChannelAccessRefused as error:
        return Check(name, "fail", f"the user may not consume: {error}", _RIGHTS_REMEDY)
    except aiormq.exceptions.ChannelPreconditionFailed:
        return Check(name, "ok", f"the user may consume {queue!r}")
    except aiormq.exceptions.ChannelNotFoundEntity:
        return Check(name, "ok", f"{queue!r} is not there yet")
    except ENDED as error:
        return Check(name, "warn", f"RabbitMQ did not say whether the user may consume: {error}")
    await channel.close()
    return Check(name, "ok", f"the user may consume {queue!r}")


async def _no_message(_message: object) -> None:
    """Never called."""


async def _examine_publishing(connection: AbstractConnection) -> Check:
    """Whether RabbitMQ confirms a message to no queue: an alarm blocks publishers."""
    name = "rabbitmq.alarms"
    channel = await open_channel(connection, confirms=True)
    try:
        await channel.basic_publish(
            b"", routing_key=f"groupflow.doctor.{uuid4().hex}", timeout=CONFIRM_WITHIN
        )
    except TimeoutError:
        return Check(
            name,
            "warn",
            f"no confirm within {CONFIRM_WITHIN:g} s: an alarm on memory or disk blocks publishers",
            "See `rabbitmqctl status`; free memory or disk. What is in the queue still drains.",
        )
    except aiormq.exceptions.ChannelAccessRefused:
        note = "the user may not publish (it needs to only for `groupflow publish`)"
        return Check(name, "ok", note)
    except ENDED as error:
        return Check(name, "warn", f"RabbitMQ took no message: {error}")
    with suppress(*ENDED):
        await channel.close()
    return Check(name, "ok", "none: publishes are confirmed")
