"""Publishing with confirms: a message counts as published when RabbitMQ says that it is safe.

What an application publishes is checked before it goes out.
"""

from __future__ import annotations

import asyncio
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from time import monotonic
from typing import Any, TypeAlias
from uuid import uuid4

import aiormq
import orjson
import pamqp.encode
from aiormq.abc import AbstractChannel
from pamqp.header import ContentHeader

from groupflow.broker import frames
from groupflow.broker.connection import broker_calls, connected, open_channel
from groupflow.broker.partitions import declare
from groupflow.core.errors import (
    ConfirmTimeout,
    HeadersTooLarge,
    PublishRefused,
    QueueMissing,
    Unroutable,
)
from groupflow.core.headers import HEADER_DEPTH, MAX_HEADERS, are_deep, headers_over, json_headers
from groupflow.core.routing import (
    CANCEL,
    MAX_SECONDS,
    MAX_TEXT_BYTES,
    SOONEST,
    Router,
    parse_body,
)
from groupflow.core.template import has_controls
from groupflow.core.tracing import Tracing

IN_FLIGHT = 200  # unconfirmed messages at once: hides the round trip, bounds what a loss repeats
PERSISTENT = 2
_SLOW = 0.01  # seconds that a message takes to come
_AROUND = 8  # bytes of a frame around its content
_ANY = 2**32  # bytes of a frame where RabbitMQ sets no bound
_MISSING = (
    aiormq.exceptions.PublishError,  # handed back: no queue is there for it
    aiormq.exceptions.ChannelNotFoundEntity,  # no exchange is
)
_REFUSALS = (
    aiormq.exceptions.ChannelAccessRefused,  # no right to write to the default exchange
    aiormq.exceptions.ChannelPreconditionFailed,  # larger than max_message_size
)
_NAME_BYTES = 128  # of a header's name: longer ones are cut on their way

Body: TypeAlias = bytes | str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish. Published again as the same object, it is the same task.

    Attributes:
        body: a JSON object: its bytes as they are to arrive, its text, or a mapping to be written
            as JSON.
        type: the task type; ``None`` where the body names it.
        id: the task's id, at most 255 bytes; fresh where none is given.
        headers: AMQP headers.
        priority: seconds by which the task counts as older than it is; ``None``: as configured.
        delay: seconds before which it may not run; ``None``: as configured.
        expires: seconds after intake took it within which it has to start; ``None``: as configured.
        reply_to: a queue that is told how the task ended, one that the daemons' ``[events]
            replies`` allows.
        correlation_id: what its events and its reply have, at most 255 bytes.
    """

    body: Body
    type: str | None = None
    id: str = field(default_factory=lambda: uuid4().hex)
    headers: Mapping[str, Any] = field(default_factory=dict)
    priority: float | None = None
    delay: float | None = None
    expires: float | None = None
    reply_to: str | None = None
    correlation_id: str | None = None

    def checked(self, max_headers: int = MAX_HEADERS) -> Outgoing:
        """The message as it goes out.

        Args:
            max_headers: bytes of headers that a task may have (`rabbitmq.max_headers`).

        Raises:
            Unroutable: it would be a dead letter from the start; the reason says why.
        """
        check_name("id", self.id)
        if self.type is not None:
            check_name("type", self.type)
        for what, text in (("reply_to", self.reply_to), ("correlation_id", self.correlation_id)):
            if text is not None:
                check_name(what, text)
        headers = dict(self.headers)
        if self.priority is not None:
            headers["x-priority"] = _number("priority", self.priority, -MAX_SECONDS)
        if self.delay is not None:
            headers["x-delay"] = round(float(_number("delay", self.delay, 0.0)) * 1000)
        if self.expires is not None:
            headers["x-expires"] = _number("expires", self.expires, SOONEST)
        _check_headers(headers, max_headers)
        body = _packed(self.body)
        return Outgoing(body, self.type, self.id, headers, self.reply_to, self.correlation_id)


def _packed(body: Body) -> bytes:
    try:
        if isinstance(body, str):
            body = body.encode()
        packed = body if isinstance(body, bytes) else orjson.dumps(dict(body))
    except (TypeError, ValueError) as error:
        raise Unroutable(f"the body can't be written as JSON: {error}") from None
    parse_body(packed)
    return packed


def check_name(what: str, text: str) -> None:
    """Check that AMQP can carry an id, say, and that intake takes it.

    Raises:
        Unroutable: it can't be one.
    """
    is_text = isinstance(text, str)  # an application's, which no type checker may have seen
    if not is_text or not 1 <= len(text.encode(errors="replace")) <= MAX_TEXT_BYTES:
        raise Unroutable(f"the {what} has to be a text of 1 to {MAX_TEXT_BYTES} bytes")
    if has_controls(text):
        raise Unroutable(f"the {what} has control characters")


def _check_headers(headers: dict[str, Any], most: int) -> None:
    """Check that AMQP can carry the headers, and that intake, which reads them so, takes them."""
    if are_deep(headers):
        raise Unroutable(
            f"the headers are nested over {HEADER_DEPTH} deep: what lies deeper would be lost"
        )
    try:
        packed = pamqp.encode.field_table(headers)
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
        raise Unroutable(f"AMQP can't carry the headers: {error}") from None
    _, seen = frames.table(packed)
    if over := headers_over(seen.size, seen.count, is_cut=seen.is_cut, most=most):
        raise Unroutable(over)
    if seen.keys() != headers.keys():
        raise Unroutable(f"AMQP can't carry a header's name of over {_NAME_BYTES} bytes")


def _number(what: str, value: float, least: float) -> int | str:
    """A number of seconds as a header that keeps it whole: AMQP's floats have 7 digits."""
    if not least <= value <= MAX_SECONDS:
        raise Unroutable(f"the {what} is {value}: from {least:g} to {MAX_SECONDS:g} seconds")
    return int(value) if float(value).is_integer() else repr(float(value))


class Address:
    """The default exchange and a queue; or an exchange that gives each group to one of many."""

    def __init__(self, queue: str, router: Router | None = None) -> None:
        """Binds the names.

        Args:
            queue: as configured.
            router: tells which group a message is of, where the queue has several partitions;
                ``None``: it has one.
        """
        self._queue = queue
        self._router = router
        self.exchange = "" if router is None else queue
        kind = "queue" if router is None else "exchange with a queue bound to it:"
        self.name = f"{kind} {queue!r}"  # for errors

    def routing_key(self, message: Outgoing) -> str:
        """The queue's name; where there are several, the message's group, or its id without one.

        AMQP bounds a routing key: for a long group it is the group's hash.
        """
        if self._router is None:
            return self._queue
        named = message.headers.get(CANCEL, message.message_id)
        try:
            # A message that cancels a task goes the way of that task's own.
            shown = {n: each for n, each in json_headers(message.headers).items() if n != CANCEL}
            group = self._router.route(message.body, shown, type=message.type).group
        except Unroutable:  # a dead letter, of no group
            group = None
        if group is None:
            return str(named)
        packed = group.encode()
        return group if len(packed) <= MAX_TEXT_BYTES else sha256(packed).hexdigest()


@dataclass(frozen=True, slots=True)
class Outgoing:
    body: bytes  # its bytes, a JSON object
    type: str | None = None  # the task type, the AMQP `type` property
    message_id: str = field(default_factory=lambda: uuid4().hex)
    """The task's id; a duplicate of it is dropped. Fresh where none is given."""
    headers: Mapping[str, Any] = field(default_factory=dict)  # AMQP headers
    reply_to: str | None = None  # the queue that is told how the task ended
    correlation_id: str | None = None  # what the publisher knows it by


class TermPublisher:
    """Publishes to one address, in order, for one connection's life."""

    def __init__(
        self,
        channel: AbstractChannel,
        address: Address,
        timeout: float,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._channel = channel
        self._address = address
        self._timeout = timeout
        self._under_way: dict[str, asyncio.Future[None]] = {}  # by message id

    @property
    def is_closed(self) -> bool:
        """Whether its channel has ended, and so it publishes nothing more."""
        return self._channel.is_closed

    async def publish(self, message: Outgoing) -> None:
        """Publish one message and wait for its confirm.

        Raises:
            QueueMissing: the queue isn't there.
            HeadersTooLarge: they are over a frame.
            PublishRefused: the queue is full, or RabbitMQ takes no such message from this user.
            ConfirmTimeout: no confirm came in time; the message may have been taken.
            BrokerUnavailable: the connection has ended; the message may have been taken. Publish
                it again under the same id, and it counts once.
        """
        if self._tracing is None:
            return await self._publish(message)
        with self._tracing.publishing(message.message_id, len(message.body)) as carrier:
            headers = {**message.headers, **carrier}
            return await self._publish(replace(message, headers=headers))

    async def _publish(self, message: Outgoing) -> None:
        properties = aiormq.spec.Basic.Properties(
            content_type="application/json",
            delivery_mode=PERSISTENT,
            message_id=message.message_id,
            message_type=message.type,
            headers=dict(message.headers) or None,
            reply_to=message.reply_to,
            correlation_id=message.correlation_id,
        )
        if message.headers:
            self._check_frame(message, properties)
        address = self._address
        routing_key = address.routing_key(message)
        with broker_calls("the message was not confirmed"):
            try:
                async with asyncio.timeout(self._timeout), self._alone(message.message_id):
                    await self._channel.basic_publish(
                        message.body,
                        exchange=address.exchange,
                        routing_key=routing_key,
                        properties=properties,
                        mandatory=True,
                    )
            except TimeoutError as error:
                raise unconfirmed(message.message_id, self._timeout) from error
            except _MISSING as error:
                raise QueueMissing(
                    f"there is no {address.name} for message {message.message_id!r}: it was "
                    "deleted, or no daemon has declared it yet"
                ) from error
            except aiormq.exceptions.DeliveryError as error:
                raise PublishRefused(
                    f"the {address.name} did not take message {message.message_id!r}: it is full"
                ) from error
            except _REFUSALS as error:  # with it RabbitMQ has closed the channel
                raise PublishRefused(
                    f"RabbitMQ refused message {message.message_id!r}, or one just before: {error}"
                ) from error

    @asynccontextmanager
    async def _alone(self, id_: str) -> AsyncIterator[None]:
        """One message of an id at a time: aiormq tells by it which one RabbitMQ hands back."""
        while (earlier := self._under_way.get(id_)) is not None:
            await asyncio.wait([earlier])
        self._under_way[id_] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._under_way.pop(id_).set_result(None)

    def _check_frame(self, message: Outgoing, properties: aiormq.spec.Basic.Properties) -> None:
        """Look whether the properties fit into one frame: they are never split.

        A larger one would end the connection, and with it other calls' publishing.
        """
        most = self._channel.connection.connection_tune.frame_max or _ANY
        size = len(ContentHeader(0, len(message.body), properties).marshal()) + _AROUND
        if size > most:
            raise HeadersTooLarge(
                f"the headers of message {message.message_id!r} need a frame of {size} bytes, and "
                f"RabbitMQ takes {most} (frame_max)"
            )

    async def publish_all(
        self, messages: Iterable[Outgoing], on_confirm: Callable[[], None] = lambda: None
    ) -> int:
        """Publish messages in the order that their groups are to keep, many confirms at once.

        Returns how many were confirmed, which is all of them.

        Raises:
            PublishFailed: one was refused. Those before it are there; of up to `IN_FLIGHT` behind
                it, each may be: published again under their ids they count once, but a group
                whose message was refused then has it behind them.
            BrokerUnavailable: the connection has ended; the same holds.
        """
        flying = OrderedDict[str, asyncio.Task[None]]()  # by message id
        confirmed = 0

        async def confirm_down_to(most: int) -> None:
            nonlocal confirmed
            while len(flying) > most:
                await flying.popitem(last=False)[1]
                confirmed += 1
                on_confirm()

        try:
            asked = monotonic()
            for message in messages:
                is_slow = monotonic() - asked > _SLOW
                if message.message_id in flying:  # it would wait, and others would overtake it
                    await confirm_down_to(0)
                # Tasks start in the order of their creation, and each writes its frames before it
                # first waits. So this is the order on the wire.
                flying[message.message_id] = asyncio.create_task(self.publish(message))
                # What comes slowly keeps the loop each time: confirms and heartbeats go in between.
                await confirm_down_to(0 if is_slow else IN_FLIGHT - 1)
                asked = monotonic()
            await confirm_down_to(0)
        finally:
            for task in flying.values():
                task.cancel()
            await asyncio.gather(*flying.values(), return_exceptions=True)
        return confirmed


def unconfirmed(message_id: str, seconds: float) -> ConfirmTimeout:
    """What to raise for a message without a confirm."""
    return ConfirmTimeout(
        f"no confirm for message {message_id!r} within {seconds:g} s: RabbitMQ's memory or disk "
        "alarm blocks publishers, or its queue has no leader"
    )


@asynccontextmanager
async def publishing(
    url: str,
    queue: str,
    *,
    partitions: int = 1,
    router: Router | None = None,
    timeout: float = 10.0,
    tracing: Tracing | None = None,
) -> AsyncIterator[TermPublisher]:
    """Open a publisher on a connection of its own, and declare the queue where it is missing.

    Where RabbitMQ doesn't tell this user whether it exists, `QueueMissing` does, for each message.

    Args:
        url: the broker.
        queue: where the messages go.
        partitions: how many queues there are of it.
        router: tells groups, where there are several.
        timeout: seconds for the handshake, and for each confirm.
        tracing: told of each message.

    Raises:
        BrokerUnavailable: no answer.
        ServerUnreachable: the credentials were refused.
        ConfigError: there are partitions, and RabbitMQ lacks the plugin.
    """
    async with connected(url, timeout=timeout, name="groupflow publish") as connection:
        await declare(connection, queue, partitions)
        channel = await open_channel(connection, confirms=True)
        address = Address(queue, router if partitions > 1 else None)
        yield TermPublisher(channel, address, timeout, tracing)
