"""Events on their way to RabbitMQ: to the exchange that all may listen to, and as replies.

Messages of one group go one by one, each once the one before is confirmed: so their first copies
are in order, even where RabbitMQ refuses one and takes the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic, time

import aiormq
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel

from groupflow.broker.connection import (
    HEARTBEAT,
    broker_calls,
    close_quietly,
    connect,
    open_channel,
)
from groupflow.broker.publisher import PERSISTENT
from groupflow.core.errors import BrokerUnavailable, GroupflowError
from groupflow.core.events import Told

REFUSED_FOR = 30.0  # seconds since an end for which its reply is tried, where a queue refuses it
DIRECT = "amq.rabbitmq."  # begins the names by which RabbitMQ reaches a channel without a queue
NO_REPLIES = 60.0  # seconds for which no reply is tried, once the user has no right to send any
_UNROUTED = aiormq.exceptions.PublishError  # handed back: no queue is bound for it
_REFUSED_EXCHANGES = (
    aiormq.exceptions.ChannelAccessRefused,
    aiormq.exceptions.ChannelPreconditionFailed,
)


class NotTaken(BrokerUnavailable):
    """A queue took a message not, as a full one may; the channel goes on."""


class EventsRefused(GroupflowError):
    """RabbitMQ keeps no such exchange for us, or doesn't let us publish there."""


@dataclass(slots=True)
class Published:
    """What has become of the events of a call."""

    done: set[int] = field(default_factory=set)  # the places of those that are over
    events: int = 0  # that the exchange has taken, and
    unrouted: int = 0  # of these, those that it dropped: no queue is bound for them
    replies: int = 0  # that were sent, also to queues that are gone
    unanswered: str = ""  # why a reply can't be sent: the user has no right to
    refused: BrokerUnavailable | None = None  # why one is to be tried again

    @property
    def first(self) -> int:
        """How many of the first ones are over."""
        return next(place for place in count() if place not in self.done)


class EventPublisher:
    """Publishes over a connection of its own, which is opened when it is needed."""

    def __init__(self, url: str, exchange: str, name: str, *, timeout: float = 10.0) -> None:
        """Connects to nothing yet.

        Args:
            url: the broker.
            exchange: a durable topic exchange; empty for none.
            name: shown on RabbitMQ's own page.
            timeout: seconds for each answer.
        """
        self._url = url
        self._exchange = exchange
        self._name = name
        self._timeout = timeout
        self._connection: AbstractConnection | None = None
        self._events: AbstractChannel | None = None
        # Of their own: RabbitMQ closes the channel of a message that it refuses.
        self._replies: AbstractChannel | None = None
        self._replies_from = 0.0  # none is sent before (monotonic)
        self._opening = asyncio.Lock()
        self._direct: EventPublisher | None = None  # for replies to channels
        self._directly = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections that there are; the next call opens others."""
        await self._end()
        if self._direct is not None:
            await self._direct.close()

    async def _end(self) -> None:
        connection, self._connection = self._connection, None
        self._events = self._replies = None
        if connection is not None:
            await close_quietly(connection.close())

    async def publish(
        self, events: Sequence[Told], told: frozenset[str], published: Published
    ) -> None:
        """Publish events, those with names in `told` to the exchange, and wait for the confirms.

        Those of one group are in order. `published` says what has become of them, also after an
        error: then what isn't over there may have been published all the same. What is over there
        already isn't published again.

        Raises:
            EventsRefused: there is no such exchange for us.
            BrokerUnavailable: no answer.
        """
        lines: dict[str, list[int]] = {}
        published.refused = None
        for place, event in enumerate(events):
            if place not in published.done and self._is_sent(event, told):
                lines.setdefault(event.line, []).append(place)
            else:
                published.done.add(place)
        if not lines:
            return
        async with self._opening:
            await self._open()
        try:
            async with asyncio.timeout(self._timeout), asyncio.TaskGroup() as group:
                for places in lines.values():
                    group.create_task(self._publish(events, places, told, published))
        except BaseExceptionGroup as errors:
            await self._end()
            raise errors.exceptions[0] from None
        except TimeoutError as error:
            await self._end()
            raise BrokerUnavailable(
                f"RabbitMQ confirmed not all of {len(events)} events within {self._timeout:g} s"
            ) from error
        if published.refused:
            raise published.refused

    def _is_sent(self, event: Told, told: frozenset[str]) -> bool:
        return bool(event.reply_to) or (bool(self._exchange) and event.event in told)

    async def _open(self) -> None:
        """Have a connection with both channels, and the exchange."""
        if self._connection and self._events and not self._events.is_closed:
            if self._replies is None or self._replies.is_closed:
                # RabbitMQ hears nothing of a connection that an alarm blocks.
                with broker_calls("RabbitMQ opened no channel for replies"):
                    async with asyncio.timeout(self._timeout):
                        self._replies = await open_channel(self._connection, confirms=True)
            return
        await self._end()
        connection = await connect(
            self._url, heartbeat=HEARTBEAT, timeout=self._timeout, name=self._name
        )
        try:
            async with asyncio.timeout(self._timeout):
                await self._declare(connection)
                self._events = await open_channel(connection, confirms=True)
                self._replies = await open_channel(connection, confirms=True)
        except BaseException as error:
            await close_quietly(connection.close())
            if isinstance(error, TimeoutError):
                raise BrokerUnavailable("RabbitMQ did not answer in time") from error
            raise
        self._connection = connection

    async def _declare(self, connection: AbstractConnection) -> None:
        """Declare the exchange, where it is missing."""
        if not self._exchange:
            return
        channel = await open_channel(connection, confirms=False)
        with broker_calls(f"RabbitMQ declared no exchange {self._exchange!r}"):
            try:
                await channel.exchange_declare(self._exchange, exchange_type="topic", durable=True)
            except _REFUSED_EXCHANGES as error:
                raise EventsRefused(
                    f"RabbitMQ has no durable topic exchange {self._exchange!r} for us: {error}"
                ) from error
        await close_quietly(channel.close())

    async def _publish(
        self,
        events: Sequence[Told],
        places: Iterable[int],
        told: frozenset[str],
        published: Published,
    ) -> None:
        """Publish the events of one group, one by one, up to one that is refused."""
        for place in places:
            event = events[place]
            try:
                if self._exchange and event.event in told:
                    await self._tell_all(event, published)
                if event.reply_to:
                    await self._answer(event, published)
            except NotTaken as error:
                published.refused = error
                return
            published.done.add(place)

    async def _tell_all(self, event: Told, published: Published) -> None:
        with broker_calls(f"event {event.message_id!r} was not confirmed"):
            try:
                await self._send(self._events, event, self._exchange, event.routing_key)
            except _UNROUTED:
                published.unrouted += 1
            except aiormq.exceptions.DeliveryError as error:
                raise _not_taken("event", event) from error
            except aiormq.exceptions.ChannelAccessRefused as error:
                raise EventsRefused(
                    f"the user may not publish to the exchange {self._exchange!r}: {error}"
                ) from error
            published.events += 1

    async def _answer(self, event: Told, published: Published) -> None:
        """Reply, where the user may.

        RabbitMQ may end the connection for a channel's name that it has not given out itself, and
        anyone may make one up. So these replies go one by one, over a connection of their own, and
        once.
        """
        if not event.reply_to.startswith(DIRECT):
            return await self._reply(event, published)
        async with self._directly:
            self._direct = direct = self._direct or EventPublisher(
                self._url, "", self._name, timeout=self._timeout
            )
            await direct._open()
            try:
                await direct._reply(event, published)
            except BrokerUnavailable:
                published.replies += 1
                await direct.close()

    async def _reply(self, event: Told, published: Published) -> None:
        """The same over this connection. A queue that is gone is no error."""
        if monotonic() < self._replies_from:
            return
        with broker_calls(f"reply {event.message_id!r} was not confirmed"):
            try:
                await self._send(self._replies, event, "", event.reply_to)
                published.replies += 1
            except _UNROUTED:
                published.replies += 1
            except aiormq.exceptions.DeliveryError as error:
                # Anyone may name a queue for replies, and it must not hold up all for good.
                if time() - event.number / 1_000_000 < REFUSED_FOR:
                    raise _not_taken("reply", event) from error
                published.replies += 1
            except aiormq.exceptions.ChannelAccessRefused as error:
                self._replies_from = monotonic() + NO_REPLIES
                published.unanswered = str(error)

    async def _send(
        self, channel: AbstractChannel | None, event: Told, exchange: str, routing_key: str
    ) -> None:
        if channel is None or channel.is_closed:  # another group's event has met the end of it
            raise BrokerUnavailable("the connection has ended")
        trace = event.facts.get("trace")
        await channel.basic_publish(
            event.body,
            exchange=exchange,
            routing_key=routing_key,
            properties=aiormq.spec.Basic.Properties(
                content_type="application/json",
                delivery_mode=PERSISTENT,
                message_id=event.message_id,
                message_type=event.event,
                correlation_id=event.correlation_id or None,
                headers=dict(trace) if isinstance(trace, dict) else None,
            ),
            mandatory=True,
        )


def _not_taken(what: str, event: Told) -> NotTaken:
    return NotTaken(f"{what} {event.message_id!r} was not confirmed: is a queue full?")
