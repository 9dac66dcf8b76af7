"""Consuming for one term: deliveries in the broker's order, acks up to one of them.

Below aio-pika each delivery starts a task of its own. The callback here only appends, and awaits
nothing. So the order of the tasks, which is the order of the frames, is the order of the list.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel, DeliveredMessage

from groupflow.broker import frames
from groupflow.broker.connection import broker_calls, close_quietly, open_channel
from groupflow.broker.frames import FieldTable
from groupflow.core.errors import BrokerUnavailable

STREAM = 8  # deliveries that have come since the last batch: more are behind them
GATHER = 0.004  # seconds that a batch of a stream may wait to be whole
VALUE_BYTES = 128  # of memory that a header's value takes beside its own bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as RabbitMQ handed it over."""

    tag: int  # the delivery's number on its channel
    body: bytes  # the published bytes
    message_id: str | None  # as the publisher set it, or None
    type: str | None  # the AMQP `type` property, or None
    headers: Mapping[str, Any]  # the AMQP headers
    priority: int | None  # the AMQP `priority` property, or None
    header_bytes: int = 0  # how many the headers took as they came
    header_values: int = 0  # how many values were read of them, nested ones too
    headers_cut: bool = False  # whether there were more, which are lost
    expiration: str | None = None  # the AMQP `expiration` property, milliseconds, or None
    reply_to: str | None = None  # the queue that waits for its end, or None
    correlation_id: str | None = None  # what the publisher knows it by, or None

    @property
    def weight(self) -> int:
        """Bytes of memory that it takes, about."""
        return len(self.body) + self.header_bytes + self.header_values * VALUE_BYTES


class Consumer:
    def __init__(self, queue: str, max_bytes: int) -> None:
        """Makes a consumer that `consuming` starts.

        Where more than `max_bytes`, bodies and headers, was delivered and not taken, the term ends.
        """
        self._channel: AbstractChannel
        self._queue = queue
        self._max_bytes = max_bytes
        self._bytes = 0
        self.overflowed = 0
        """How many deliveries together were over `max_bytes`, where that ended the term."""
        self._waiting: deque[Delivery] = deque()
        self._enough = (1, 1)  # deliveries, or bytes, that `take` waits for
        self._come = asyncio.Event()  # so much has come, or the term has ended
        self._ended = ""
        self.has_delivered = False
        """Whether it got a delivery: then it is the queue's active consumer, until its end."""

    async def start(self, channel: AbstractChannel, prefetch: int) -> None:
        """Begin to consume; only one consumer of the queue is active at a time."""
        self._channel = channel
        self._channel.closing.add_done_callback(lambda _: self._end("the connection has ended"))
        self._channel.on_consumer_cancel_callbacks.add(self._on_cancel)
        await self._channel.basic_qos(prefetch_count=prefetch)
        await self._channel.basic_consume(self._queue, self._on_delivery)

    async def _on_delivery(self, message: DeliveredMessage) -> None:
        if self._ended:
            return  # it comes again in the next term
        self.has_delivered = True
        try:
            delivery = _delivery_of(message)
            self._waiting.append(delivery)
        except BaseException as error:
            # Nothing behind it is taken: an ack of that would cover this one, too.
            self._end(f"a delivery can't be read: {type(error).__name__}")
            raise
        self._bytes += delivery.weight
        if self._has_enough:
            self._come.set()
        if self._bytes > self._max_bytes and len(self._waiting) > 1:
            # RabbitMQ limits by number only. Deliveries not taken go back to their place.
            self.overflowed = len(self._waiting)
            self._end(
                f"{self.overflowed} messages of {self._bytes} bytes are over "
                f"rabbitmq.max_in_flight = {self._max_bytes}: fewer at once from here on"
            )
            self._waiting.clear()

    def _on_cancel(self, *_: object) -> None:
        self._end(f"RabbitMQ cancelled the consumer: was the queue {self._queue!r} deleted?")

    def _end(self, why: str) -> None:
        self._ended = self._ended or why
        self._come.set()

    async def take(self, most: int, most_bytes: int) -> list[Delivery]:
        """Wait for deliveries and take what has come, in order, up to the one that reaches a limit.

        A batch costs RabbitMQ, Redis and us much the same at any size. So where messages stream in,
        it waits a moment to be whole; a message that comes alone never waits.

        Raises:
            BrokerUnavailable: the term has ended. What was not acked comes again in the next one.
        """
        await self._until(1, 1)
        if len(self._waiting) >= STREAM:
            timer = asyncio.get_running_loop().call_later(GATHER, self._come.set)
            await self._until(most, most_bytes)
            timer.cancel()
        if self._ended:
            raise BrokerUnavailable(self._ended)
        batch: list[Delivery] = []
        size = 0
        while self._waiting and len(batch) < most and size < most_bytes:
            delivery = self._waiting.popleft()
            size += delivery.weight
            self._bytes -= delivery.weight
            batch.append(delivery)
        return batch

    async def _until(self, most: int, most_bytes: int) -> None:
        """Wait until so much has come, `take`'s timer fires, or the term ends."""
        self._enough = (most, most_bytes)
        if not self._ended and not self._has_enough:
            self._come.clear()
            await self._come.wait()

    @property
    def _has_enough(self) -> bool:
        most, most_bytes = self._enough
        return len(self._waiting) >= most or self._bytes >= most_bytes

    @property
    def bytes_waiting(self) -> int:
        """Bytes of what was delivered and not taken yet, bodies and headers."""
        return self._bytes if self.is_open else 0

    @property
    def is_open(self) -> bool:
        return not self._ended

    async def ack_through(self, delivery: Delivery) -> None:
        """Ack this delivery and all before it. No answer comes: a lost ack means a duplicate.

        Raises:
            BrokerUnavailable: the term has ended; all of them come again.
        """
        with broker_calls("RabbitMQ took no ack"):
            await self._channel.basic_ack(delivery.tag, multiple=True)

    def finish(self, why: str = "the daemon stops") -> None:
        """End the term: the next consumer gets what was not taken yet."""
        self._end(why)


def _delivery_of(message: DeliveredMessage) -> Delivery:
    properties = message.header.properties
    headers = properties.headers
    if not isinstance(headers, FieldTable):  # there are none, or `frames` hasn't read them
        headers = FieldTable(headers or {})
    return Delivery(
        tag=message.delivery_tag or 0,
        body=message.body,
        message_id=properties.message_id,
        type=properties.message_type,
        headers=headers,
        priority=properties.priority,
        header_bytes=headers.size,
        header_values=headers.count,
        headers_cut=headers.is_cut,
        expiration=properties.expiration,
        reply_to=properties.reply_to,
        correlation_id=properties.correlation_id,
    )


@asynccontextmanager
async def consuming(
    connection: AbstractConnection, consumer: Consumer, prefetch: int
) -> AsyncIterator[None]:
    """Run a consumer on a channel of its own.

    Raises:
        BrokerUnavailable: the connection has ended, or the queue can't be consumed.
    """
    frames.tolerate_strangers()
    channel = await open_channel(connection, confirms=False)
    try:
        with broker_calls("RabbitMQ did not let us consume the queue"):
            await consumer.start(channel, prefetch)
        yield
    finally:
        await close_quietly(channel.close())
