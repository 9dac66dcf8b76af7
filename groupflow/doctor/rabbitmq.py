"""Asks RabbitMQ: its version, its nodes, the queue and exchange as declared, rights, alarms.

What is missing is never declared here. AMQP doesn't tell the bindings, nor which node leads a
queue: the management API does, where it is configured. It needs a user with the tag *monitoring*,
which daemons don't.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

import aiormq
import httpx
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from pamqp.common import FieldValue
from pydantic import BaseModel, TypeAdapter, ValidationError

from groupflow.broker import dead_stream, partitions, topology
from groupflow.broker.connection import ENDED, close_quietly, connect, nodes_of, open_channel
from groupflow.broker.topology import Difference, Presence
from groupflow.core.checkup import Check
from groupflow.core.errors import BrokerUnavailable, ServerUnreachable
from groupflow.core.masking import mask_place
from groupflow.doctor.table import judge
from groupflow.settings.model import Settings
from groupflow.settings.transport import address_of, split_tls, split_url

TIMEOUT = 10.0  # seconds for a handshake, and for an answer of the management API
CONFIRM_WITHIN = 2.0  # seconds; an alarm lets no confirm come at all

_REFUSALS: dict[type[Exception], str] = {
    aiormq.exceptions.ChannelAccessRefused: "denied",
    aiormq.exceptions.ChannelPreconditionFailed: "differs",
    aiormq.exceptions.ChannelNotFoundEntity: "missing",
    TimeoutError: "silent",
}

_connect = partial(connect, heartbeat=10, timeout=TIMEOUT, name="groupflow doctor")
_Told = TypeVar("_Told")


async def examine_rabbitmq(settings: Settings) -> list[Check]:
    """Everything about RabbitMQ, as the configured user sees it.

    Raises:
        BrokerUnavailable: no answer.
        ConfigError: the way to it isn't safe.
        ServerUnreachable: it refused the credentials.
    """
    rabbitmq, history, url = settings.rabbitmq, settings.history, settings.rabbitmq_url()
    queue, count = rabbitmq.queue, rabbitmq.partitions
    connection = await _connect(url)
    try:
        version = await _told_by(connection, "version")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        checks = judge("rabbitmq.version", version=version, numbers=numbers)
        checks += await _examine_nodes(url)
        for name in partitions.names_of(queue, count):
            checks += await _examine_queue(connection, name, version)
        checks += await _examine_partitions(connection, queue, count)
        if management := rabbitmq.management.get_secret_value():
            exchange = settings.events.exchange
            checks += await _examine_management(management, url, queue, count, exchange)
        elif count > 1:
            checks += judge("rabbitmq.leaders untold")
        stays, trusts = history.dead_retention, history.dead_policy
        checks.append(
            await dead_stream.examine(connection, queue, version, stays, trusts_policy=trusts)
        )
        checks += await _examine_events(connection, settings.events.exchange)
        checks += await _examine_publishing(connection, replies=bool(settings.events.replies))
        if count > 1:  # last, since RabbitMQ 3 ends the connection where it is missing
            is_there = await partitions.has_plugin(connection, queue)
            [problem] = partitions.plugin_missing(count).problems
            facts = {"plugin": partitions.PLUGIN, "remedy": problem.remedy}
            checks += judge("rabbitmq.plugin", is_there=is_there, **facts)
        return checks
    finally:
        await close_quietly(connection.close())


async def _told_by(connection: AbstractConnection, name: str) -> str:
    """A property of the server."""
    channel = await open_channel(connection, confirms=False)
    told = str(channel.connection.server_properties.get(name, ""))
    await close_quietly(channel.close())
    return told


async def _refusal(
    connection: AbstractConnection,
    act: Callable[[AbstractChannel], Awaitable[object]],
    *,
    confirms: bool = False,
) -> tuple[str, str]:
    """How RabbitMQ refuses a call: a word for it, and its own; both are empty where it doesn't.

    Each call has a channel of its own, since a refusal closes it. Under an alarm RabbitMQ opens
    none on a connection that has published. Raises BrokerUnavailable where that has ended.
    """
    try:
        async with asyncio.timeout(TIMEOUT):
            channel = await open_channel(connection, confirms=confirms)
            await act(channel)
    except BrokerUnavailable:
        raise
    except ENDED as error:
        return _refusal_in(error), str(error) or "no answer in time"
    await close_quietly(channel.close())
    return "", ""


def _refusal_in(error: Exception) -> str:
    found = (word for kind, word in _REFUSALS.items() if isinstance(error, kind))
    return next(found, "ended")


async def _examine_nodes(url: str) -> list[Check]:
    """Whether all nodes of a URL answer, and are of one cluster; nothing where there is one."""
    nodes = nodes_of(url)
    if len(nodes) == 1:
        return []
    told = dict(zip(nodes, await asyncio.gather(*map(_cluster_of, nodes)), strict=True))
    away = [error for error in told.values() if isinstance(error, Exception)]
    names = {address_of(node): each for node, each in told.items() if isinstance(each, str)}
    facts = {
        "count": len(nodes),
        "answered": len(names),
        "names": len(set(names.values())),
        "told": ", ".join(f"{address} of {name!r}" for address, name in names.items()),
    }
    every = [*away, None]  # the last is for what those that answer say
    return [check for e in every for check in judge("rabbitmq.nodes", error=e, **facts)]


async def _cluster_of(node: str) -> str | Exception:
    """The name of a node's cluster, or the error."""
    try:
        connection = await _connect(node)
    except (BrokerUnavailable, ServerUnreachable) as error:
        return error
    try:
        return await _told_by(connection, "cluster_name")
    except BrokerUnavailable as error:
        return error
    finally:
        await close_quietly(connection.close())


async def _examine_queue(connection: AbstractConnection, queue: str, version: str) -> list[Check]:
    """Whether the queue is as it must be, and the user may consume it."""
    presence = await topology.presence_of(connection, queue)
    if presence is Presence.THERE:
        checks = await _examine_arguments(connection, queue, version)
        checks += await _examine_depth(connection, queue)
    else:
        facts = {"queue": queue, "version": version, "words": "no answer in time"}
        checks = judge("rabbitmq.queue", state=presence.value, **facts)
    if presence is Presence.MISSING:
        return checks
    # Tried with an argument that RabbitMQ refuses after the rights: so no consumer ever starts.
    consume = methodcaller("basic_consume", queue, _no_message, arguments={"x-priority": "doctor"})
    refusal, words = await _refusal(connection, consume)
    return checks + judge("rabbitmq.reading", queue=queue, refusal=refusal, words=words)


async def _examine_depth(connection: AbstractConnection, queue: str) -> list[Check]:
    """How many messages wait in a queue, and whether something consumes them."""
    told: list[aiormq.spec.Queue.DeclareOk] = []

    async def look(channel: AbstractChannel) -> None:
        told.append(await channel.queue_declare(queue, passive=True))

    await _refusal(connection, look)
    return [
        check
        for each in told
        for check in judge(
            "rabbitmq.waiting",
            queue=queue,
            waiting=each.message_count or 0,
            consumers=each.consumer_count or 0,
        )
    ]


async def _no_message(_message: object) -> None:
    """Never called."""


async def _examine_arguments(
    connection: AbstractConnection, queue: str, version: str
) -> list[Check]:
    unlimited = topology.unlimited_deliveries(version)
    wanted = {**topology.ARGUMENTS, **unlimited}
    try:
        differences = await topology.differences_of(connection, queue, wanted)
    except ENDED as error:
        facts = {"queue": queue, "version": version, "words": error}
        return judge("rabbitmq.queue", state=_refusal_in(error), **facts)
    return judge_queue(queue, differences, is_limited=bool(unlimited))


def judge_queue(queue: str, differences: Sequence[Difference], *, is_limited: bool) -> list[Check]:
    """What it means that a queue differs; `is_limited`: whether deliveries are, by default."""
    current = {each.argument: each.current for each in differences}
    facts = {"queue": queue, "overflow": current.get("x-overflow")}
    checks = [
        check
        for name, value in current.items()
        if name not in ("x-delivery-limit", "x-queue-leader-locator")
        for check in judge("rabbitmq.queue argument", argument=name, value=_text(value), **facts)
    ] or judge("rabbitmq.queue", queue=queue, state="")
    limit = current.get("x-delivery-limit")
    by_default = "the default of 20" if is_limited and "x-delivery-limit" in current else ""
    bound = by_default if limit is None else _text(limit)
    is_kept = "x-dead-letter-exchange" in current
    then = "goes to its dead-letter exchange" if is_kept else "is dropped"
    return checks + judge("rabbitmq.delivery-limit", bound=bound, then=then)


def _text(value: FieldValue) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _examine_partitions(
    connection: AbstractConnection, queue: str, count: int
) -> list[Check]:
    """Whether published messages reach the queues that are consumed."""
    others = ", ".join(await partitions.others_of(connection, queue, count))
    checks = judge("rabbitmq.partitions left", others=others, partitions=count)
    if count == 1:
        return checks
    missing = []
    for name in (queue, partitions.ring_of(queue)):
        look = methodcaller("exchange_declare", name, passive=True)
        refusal, _ = await _refusal(connection, look)
        if refusal == "missing":
            missing.append(repr(name))
    shown = " nor ".join(missing)
    return checks + judge("rabbitmq.partitions", queue=queue, partitions=count, missing=shown)


async def _examine_events(connection: AbstractConnection, exchange: str) -> list[Check]:
    """Whether the exchange of events is as it must be, or may be declared, and is open to us."""
    if not exchange:
        return []
    look = methodcaller("exchange_declare", exchange, passive=True)
    state, words = await _refusal(connection, look)
    if state in ("", "missing"):
        # RabbitMQ refuses this argument after the rights, so what is missing stays so.
        odd = {"alternate-exchange": 1} if state else None
        kind = {"exchange_type": "topic", "durable": True}
        declare = methodcaller("exchange_declare", exchange, **kind, arguments=odd)
        refusal, words = await _refusal(connection, declare)
        state = "missing" if (state, refusal) == ("missing", "differs") else refusal
    # … and such an expiration: no message is ever sent.
    odd_message = aiormq.spec.Basic.Properties(expiration="doctor")
    publish = methodcaller(
        "basic_publish", b"", exchange=exchange, properties=odd_message, timeout=CONFIRM_WITHIN
    )
    refusal, _ = await _refusal(connection, publish, confirms=True)
    facts = {"exchange": exchange, "state": state, "words": words}
    return judge("rabbitmq.events", **facts, is_denied=refusal == "denied")


async def _examine_publishing(connection: AbstractConnection, *, replies: bool) -> list[Check]:
    """Whether RabbitMQ confirms a message to no queue: an alarm blocks publishers."""
    key = f"groupflow.doctor.{uuid4().hex}"
    publish = methodcaller("basic_publish", b"", routing_key=key, timeout=CONFIRM_WITHIN)
    refusal, words = await _refusal(connection, publish, confirms=True)
    facts = {"refusal": refusal, "words": words, "within": CONFIRM_WITHIN}
    return judge("rabbitmq.alarms", "rabbitmq.replies", **facts, replies=replies)


class Queue(BaseModel):
    """A queue, as the management API tells of it."""

    name: str
    type: str = "quorum"
    leader: str = ""  # the node; empty where it isn't a quorum queue, or has no leader
    members: list[str] = []
    online: list[str] = []


class _Binding(BaseModel):
    destination: str


class _Unanswered(Exception):
    """Why there is no answer to judge."""


async def _examine_management(
    url: str, amqp_url: str, queue: str, count: int, events: str
) -> list[Check]:
    """Whether all partitions are bound, and are led and held by more than one node.

    Args:
        url: of the API, with a user.
        amqp_url: where daemons connect to: it names the virtual host, and the CA to trust.
        queue: which is consumed.
        count: in how many partitions.
        events: the exchange of events, empty for none.
    """
    amqp_url, tls = split_tls(amqp_url)
    vhost = quote(unquote(split_url(amqp_url).path[1:]) or "/", safe="")
    verify = tls or ssl.create_default_context()
    async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False, verify=verify) as client:

        async def told(kind: type[_Told], where: str, name: str, rest: str) -> _Told | None:
            path = f"{where}/{vhost}/{quote(name, safe='')}{rest}"
            return await _get(client, kind, f"{url.rstrip('/')}/api/{path}")

        async def bound_to(exchange: str) -> list[str]:
            found = await told(list[_Binding], "exchanges", exchange, "/bindings/source")
            return [each.destination for each in found or ()]

        names, ring = partitions.names_of(queue, count), partitions.ring_of(queue)
        rest = "?columns=name,type,leader,members,online"
        try:
            asked = [await told(Queue, "queues", name, rest) for name in names]
            checks = judge_leaders([each for each in asked if each and each.type == "quorum"])
            if count > 1:
                bound = await bound_to(ring)
                checks = judge_bindings(queue, names, bound, await bound_to(queue)) + checks
            if events:
                listening = await told(list[_Binding], "exchanges", events, "/bindings/source")
                checks += judge("rabbitmq.events bindings", exchange=events, bound=listening)
        except _Unanswered as error:
            return judge("rabbitmq.management", place=mask_place(url), error=error)
    return checks


async def _get(client: httpx.AsyncClient, kind: type[_Told], url: str) -> _Told | None:
    """An answer of the management API; ``None`` where there is no such thing."""
    try:
        answer = await client.get(url)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if answer.status_code != httpx.codes.OK:
            raise _Unanswered(f"it answered {answer.status_code}")
        return TypeAdapter(kind).validate_json(answer.content)
    except ValidationError:
        raise _Unanswered("its answer isn't that of RabbitMQ's management API") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OSError) as error:
        raise _Unanswered(str(error) or type(error).__name__) from error


def judge_bindings(
    queue: str, names: Sequence[str], bound: Sequence[str], joined: Sequence[str]
) -> list[Check]:
    """Whether messages reach all partitions, and nothing else.

    Args:
        queue: the exchange that is published to.
        names: of the queues.
        bound: what is bound to the ring.
        joined: what is bound to the exchange.
    """
    ring = partitions.ring_of(queue)
    missing = ", ".join(name for name in names if name not in bound)
    foreign = ", ".join(sorted(set(bound) - set(names)))
    problems = {
        f"not bound: {missing}": missing,
        f"bound besides: {foreign}": foreign,
        f"{queue!r} leads to {joined or 'nothing'}, not {ring!r}": joined != [ring],
    }
    shown = "; ".join(problem for problem, is_so in problems.items() if is_so)
    return judge(
        "rabbitmq.bindings", partitions=len(names), ring=ring, foreign=foreign, problems=shown
    )


def judge_leaders(queues: Sequence[Queue]) -> list[Check]:
    """Whether each queue has a leader and all its copies, and leaders are spread over the nodes."""
    led = Counter(each.leader for each in queues)
    copies = {(node, node in each.online) for each in queues for node in each.members}
    return judge(
        "rabbitmq.leaders",
        count=len(queues),
        leaderless=", ".join(each.name for each in queues if not each.leader),
        away=", ".join(sorted(node for node, is_online in copies if not is_online)),
        nodes=len({node for node, _ in copies}),
        leading=len(led),
        told=", ".join(f"{node} leads {count}" for node, count in sorted(led.items())),
    )
