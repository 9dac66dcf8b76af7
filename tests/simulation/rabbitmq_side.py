"""A stand-in for RabbitMQ, where the consumer hands deliveries over and takes acks: one queue.

Quorum queue, single active consumer: messages keep their order, what a lost channel had not acked
comes again in its place, and the next consumer in line has the queue. A confirm means that the
queue has the message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, TypeAlias

import aiormq
import pamqp.encode

from groupflow.broker import frames
from groupflow.core.errors import BrokerUnavailable
from tests.simulation import clock
from tests.simulation.clock import pass_virtual
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import LATE, LATE_SHARE, USUAL
from tests.simulation.processes import Process, own_process

NACKS = 0.03  # of the events, those that are refused
OnDelivery: TypeAlias = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """A message as it lies in the queue."""

    id: str
    type: str | None
    body: bytes
    headers: dict[str, Any] = field(default_factory=dict)
    priority: int | None = None
    reply_to: str | None = None
    correlation_id: str | None = None

    def read_headers(self) -> Any:
        """Its headers as groupflow reads them off a frame."""
        return frames.table(pamqp.encode.field_table(self.headers))[1] if self.headers else None


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A message that an exchange, or the queue of a publisher that asked, has taken."""

    exchange: str  # empty for the default one
    routing_key: str
    id: str
    correlation_id: str | None
    body: bytes


class SimulatedRabbitmq:
    """One server with one queue, and exchanges that keep what they are told."""

    def __init__(self, loop: SimulatedLoop, chance: Random, queue: str) -> None:
        """An empty queue."""
        self.loop = loop
        self._chance = chance
        self.queue = queue
        self.messages: deque[Published] = deque()
        self.is_down = False
        self._line: list[Channel] = []  # consumers; the first is active
        self._connections: dict[Connection, None] = {}
        self.delivered = 0
        self.on_ack: Callable[[Published], None] = lambda _: None
        self.told: list[Event] = []

    def delay(self) -> float:
        """Seconds that a frame takes one way."""
        chance = self._chance
        return chance.uniform(*(LATE if chance.random() < LATE_SHARE else USUAL))

    @property
    def left(self) -> int:
        """Messages that it still holds, delivered or not."""
        return len(self.messages) + sum(len(each.unacked) for each in self._line)

    async def connect(self, *_: Any, **__: Any) -> Connection:
        """As `groupflow.broker.connection.connect`."""
        await pass_virtual(3 * self.delay())
        if self.is_down:
            raise BrokerUnavailable("RabbitMQ can't be reached: connection refused")
        connection = Connection(self)
        self._connections[connection] = None
        return connection

    def publish(self, message: Published) -> None:
        """Take a message; from here on it is confirmed, whether anybody hears of that or not."""
        self.messages.append(message)
        self.pump()

    def take(self, event: Event) -> bool:
        """Take what is told; or refuse it, as a queue does that is full."""
        if self._chance.random() < NACKS:
            return False
        self.told.append(event)
        return True

    def pump(self) -> None:
        """Hand the active consumer what it may have."""
        if not self._line:
            return
        active = self._line[0]
        while self.messages and len(active.unacked) < active.prefetch:
            active.hand_over(self.messages.popleft())
            self.delivered += 1

    def enlist(self, channel: Channel) -> None:
        """One more consumer; it stands by while there is another."""
        self._line.append(channel)
        self.pump()

    def drop(self, channel: Channel) -> None:
        """A channel is gone: what it had not acked goes back to its place."""
        if channel in self._line:
            self._line.remove(channel)
            self.messages.extendleft(reversed([message for _, message in channel.unacked]))
            channel.unacked.clear()
            self.pump()

    def cut_all(self) -> None:
        """Break every connection."""
        for connection in list(self._connections):
            connection.cut()

    def cut(self, process: Process) -> None:
        """Break the connections of a process."""
        for connection in list(self._connections):
            if connection.process is process:
                connection.cut()

    def lose_acks(self, process: Process) -> None:
        """What a process acks from here on does not arrive, until its connections break."""
        for connection in self._connections:
            if connection.process is process:
                connection.loses_acks = True

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)


class Connection:
    """As far as aio-pika's is used."""

    def __init__(self, server: SimulatedRabbitmq) -> None:
        self.server = server
        self.process = own_process()
        self.is_open = True
        self.loses_acks = False
        self.channels: list[Channel] = []

    async def channel(self, **_: Any) -> Channel:
        """A channel."""
        await pass_virtual(2 * self.server.delay())
        self.check()
        channel = Channel(self)
        self.channels.append(channel)
        return channel

    def check(self) -> None:
        if not self.is_open:
            raise aiormq.exceptions.ConnectionClosed(320, "CONNECTION_FORCED")

    async def close(self) -> None:
        """Say good-bye, which RabbitMQ hears a little later."""
        self.cut()

    def cut(self) -> None:
        """It breaks; RabbitMQ may notice later than the process, or sooner."""
        if not self.is_open:
            return
        self.is_open = False
        noticed, loop = self.server.delay(), self.server.loop
        self.server.forget(self)
        for channel in self.channels:
            loop.call_later(noticed, self.server.drop, channel, context=Context())
            channel.ended()


class Channel:
    """As far as aiormq's is used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._server = connection.server
        self._loop = self._server.loop
        self._context = copy_context()
        self.connection = SimpleNamespace(server_properties={"version": "3.10.8"})
        self.closing: asyncio.Future[Any] = self._loop.create_future()
        self.on_consumer_cancel_callbacks: set[Any] = set()
        self.prefetch = 0
        self.unacked: deque[tuple[int, Published]] = deque()
        self._tag = 0
        self._on_delivery: OnDelivery
        self._at = 0.0  # when the last delivery arrives
        self._acked_at = 0.0
        self._sent_at = 0.0  # when the last event arrives
        self._unconfirmed: dict[asyncio.Future[None], None] = {}

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return not self._connection.is_open or self.closing.done()

    async def exchange_declare(self, _name: str, **_: Any) -> None:
        """There is any exchange."""
        await pass_virtual(2 * self._server.delay())
        self._connection.check()

    async def basic_publish(
        self, body: bytes, *, exchange: str, routing_key: str, properties: Any, **_: Any
    ) -> None:
        """Publish an event and wait for its confirm, which may be a refusal."""
        self._connection.check()
        event = Event(exchange, routing_key, properties.message_id, properties.correlation_id, body)
        confirm: asyncio.Future[None] = self._loop.create_future()
        self._unconfirmed[confirm] = None
        self._sent_at = max(self._sent_at, clock.now() + self._server.delay())
        self._loop.call_at(self._sent_at, self._arrive, event, confirm, context=Context())
        await confirm

    def _arrive(self, event: Event, confirm: asyncio.Future[None]) -> None:
        if self._connection.is_open:
            is_taken = self._server.take(event)
            back = self._server.delay()
            self._loop.call_later(back, self._confirm, confirm, is_taken, context=Context())

    def _confirm(self, confirm: asyncio.Future[None], is_taken: bool) -> None:
        self._unconfirmed.pop(confirm, None)
        if not self._connection.is_open or confirm.done():
            return
        if is_taken:
            confirm.set_result(None)
        else:
            refusal: Any = SimpleNamespace(delivery_tag=0)
            confirm.set_exception(aiormq.exceptions.DeliveryError(None, refusal))

    async def get_underlay_channel(self) -> Channel:
        """Itself."""
        return self

    async def queue_declare(self, queue: str, **_: Any) -> None:
        """There is one queue, and no other."""
        await pass_virtual(2 * self._server.delay())
        self._connection.check()
        if queue != self._server.queue:
            raise aiormq.exceptions.ChannelNotFoundEntity("NOT_FOUND")

    async def basic_qos(self, *, prefetch_count: int) -> None:
        """How many may be unacked."""
        await pass_virtual(2 * self._server.delay())
        self._connection.check()
        self.prefetch = prefetch_count

    async def basic_consume(self, _queue: str, on_delivery: OnDelivery) -> None:
        """Stand in line for the queue."""
        await pass_virtual(2 * self._server.delay())
        self._connection.check()
        self._on_delivery = on_delivery
        self._server.enlist(self)

    async def basic_ack(self, tag: int, *, multiple: bool) -> None:
        """Ack; there is no answer."""
        self._connection.check()
        assert multiple
        self._acked_at = max(self._acked_at, clock.now() + self._server.delay())
        self._loop.call_at(self._acked_at, self._acked, tag, context=Context())

    def _acked(self, tag: int) -> None:
        if self._connection.is_open and not self._connection.loses_acks:
            while self.unacked and self.unacked[0][0] <= tag:
                self._server.on_ack(self.unacked.popleft()[1])
            self._server.pump()

    def hand_over(self, message: Published) -> None:
        """Send a delivery."""
        self._tag += 1
        self.unacked.append((self._tag, message))
        self._at = max(self._at, clock.now() + self._server.delay())
        self._loop.call_at(self._at, self._come, self._tag, message, context=self._context)

    def _come(self, tag: int, message: Published) -> None:
        if self._connection.is_open:
            properties = SimpleNamespace(
                message_id=message.id,
                message_type=message.type,
                headers=message.read_headers(),
                priority=message.priority,
                expiration=None,
                reply_to=message.reply_to,
                correlation_id=message.correlation_id,
            )
            header = SimpleNamespace(properties=properties)
            told = SimpleNamespace(delivery_tag=tag, body=message.body, header=header)
            self._loop.create_task(self._on_delivery(told))  # type: ignore[arg-type]

    async def close(self) -> None:
        """A channel's end: what it had not acked comes again."""
        self._server.drop(self)
        self.ended()

    def ended(self) -> None:
        """Tell the consumer, in its own process."""
        if not self.closing.done():
            self._loop.call_soon(self._tell_end, context=self._context)

    def _tell_end(self) -> None:
        for confirm in list(self._unconfirmed):
            if not confirm.done():
                confirm.set_exception(aiormq.exceptions.ChannelClosed(320, "CONNECTION_FORCED"))
        self._unconfirmed.clear()
        if not self.closing.done():
            self.closing.set_result(None)
