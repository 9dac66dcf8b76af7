"""archive: bodies of dead letters go to RabbitMQ's stream, and are read back from there.

A daemon reads back what it published before Redis lets go of it. That tells the offset, and proves
that the body is readable there, byte for byte. The same bytes may lie there twice, if two daemons
archive one letter or one dies in between; each letter knows its own.

A body here is larger than its message was, and RabbitMQ bounds a message. So a large body lies
there in parts, in order, maybe with other bodies' parts between them. The first has the body's id
and says how many there are; the others have that id and their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import aiormq
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.common import FieldValue

from groupflow.broker import dead_stream, frames
from groupflow.broker.connection import broker_calls, connected, open_channel
from groupflow.broker.publisher import PERSISTENT
from groupflow.core.errors import ArchiveRefused, BodyMissing, BodyRefused, BrokerUnavailable
from groupflow.core.task import Place

READ_AHEAD = 4  # deliveries without an ack: streams want some, and each may be as large as a body
PART = 1024 * 1024  # bytes of a message there: few RabbitMQs are told to take less
# A nack or a message handed back; and the end of the channel for one that is too large.
_REFUSED_BODIES = (
    aiormq.exceptions.DeliveryError,
    aiormq.exceptions.ChannelPreconditionFailed,
)
_OFFSET = "x-stream-offset"
_PARTS = "x-parts"


class Archive:
    """The stream of one queue. Each call opens a connection of its own: it is rare."""

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        retention: float,
        name: str,
        trusts_policy: bool = False,
        timeout: float = 10.0,
    ) -> None:
        """Connects to nothing yet; RabbitMQ's page shows it under `name`.

        With `trusts_policy` it takes a stream that keeps for less than `retention` (seconds): a
        policy, which AMQP doesn't tell of, makes it keep for longer. `timeout`, in seconds, is for
        each answer: the handshake, the declarations, the confirms, each message to come.
        """
        self._url = url
        self._queue = queue
        self._stream = dead_stream.name_of(queue)
        self._retention = retention
        self._trusts_policy = trusts_policy
        self._name = name
        self._timeout = timeout

    async def write(self, bodies: Sequence[bytes]) -> list[Place]:
        """Put bodies there, and prove that each can be read; their places, in the same order.

        Raises:
            ArchiveRefused: there is no stream for us, or it keeps bodies for too short a time.
            BodyRefused: there is one, and one of these was refused; some may lie there.
            BrokerUnavailable: no answer; some may lie there, which is harmless.
        """
        written = {(id_ := uuid4().hex): _parts_of(id_, body) for body in bodies}
        wanted = {id_: part for parts in written.values() for id_, part in parts.items()}
        offsets: dict[str, int] = {}
        async with connected(self._url, timeout=self._timeout, name=self._name) as connection:
            # RabbitMQ may not answer for a queue: its leader is away, or its channel ended.
            with broker_calls(f"RabbitMQ said nothing of {self._stream!r}"):
                async with asyncio.timeout(self._timeout):
                    await dead_stream.declare(
                        connection, self._queue, self._retention, trusts_policy=self._trusts_policy
                    )
            async with self._reading(connection, "next") as deliveries:
                await self._publish(connection, list(written.values()))
                while len(offsets) < len(wanted):
                    message = await self._come(deliveries)
                    if message is None:
                        raise BrokerUnavailable(
                            f"{self._stream!r} gave nothing back within {self._timeout:g} s"
                        )
                    id_ = message.header.properties.message_id or ""
                    if id_ not in wanted:
                        continue  # another daemon's
                    if message.body != wanted[id_]:
                        raise BrokerUnavailable(f"{self._stream!r} gives other bytes than it took")
                    offsets[id_] = _offset_of(message)
        return [Place(offsets[id_], id_) for id_ in written]

    async def read(self, place: Place) -> bytes:
        """The body at a place.

        Raises:
            BodyMissing: something else lies there, or nothing any more.
            ArchiveRefused: the user may not read the stream, or there is none.
            BrokerUnavailable: no answer.
        """
        what = f"offset {place.offset} of the stream {self._stream!r}"
        async with (
            connected(self._url, timeout=self._timeout, name=self._name) as connection,
            self._reading(connection, place.offset) as deliveries,
        ):
            while True:
                message = await self._come(deliveries)
                if message is None:
                    raise BodyMissing(f"nothing is at {what}: was it deleted?")
                if _offset_of(message) < place.offset:
                    continue
                if message.header.properties.message_id != place.message_id:
                    raise BodyMissing(f"the body is gone from {what}: its retention is over")
                return message.body + await self._rest_of(message, deliveries, what)

    async def _rest_of(
        self, first: DeliveredMessage, deliveries: asyncio.Queue[DeliveredMessage | None], what: str
    ) -> bytes:
        """The parts behind the first one."""
        count = (first.header.properties.headers or {}).get(_PARTS)
        rest: list[bytes] = []
        while isinstance(count, int) and len(rest) < count - 1:
            message = await self._come(deliveries)
            if message is None:
                raise BodyMissing(f"{count - 1 - len(rest)} parts are missing behind {what}")
            if message.header.properties.message_id == _part_id(
                first.header.properties.message_id or "", len(rest) + 1
            ):
                rest.append(message.body)
        return b"".join(rest)

    async def _publish(
        self, connection: AbstractConnection, bodies: Sequence[dict[str, bytes]]
    ) -> None:
        with broker_calls(f"{self._stream!r} confirmed nothing"):
            try:
                async with asyncio.timeout(self._timeout):
                    channel = await open_channel(connection, confirms=True)
                await asyncio.gather(*(self._publish_one(channel, parts) for parts in bodies))
            except TimeoutError as error:
                raise BrokerUnavailable(
                    f"{self._stream!r} confirmed nothing within {self._timeout:g} s: "
                    "does RabbitMQ's memory or disk alarm block publishers?"
                ) from error
            except _REFUSED_BODIES as error:
                raise BodyRefused(
                    f"RabbitMQ took not all that was published to {self._stream!r}: {error}"
                ) from error
            except dead_stream.REFUSALS as error:
                raise ArchiveRefused(
                    f"RabbitMQ took nothing for {self._stream!r}: {error}"
                ) from error

    async def _publish_one(self, channel: AbstractChannel, parts: dict[str, bytes]) -> None:
        """One body; each part goes once the one before it is confirmed, so they lie in order."""
        headers: dict[str, FieldValue] = {_PARTS: len(parts)}
        for id_, part in parts.items():
            properties = aiormq.spec.Basic.Properties(
                message_id=id_, delivery_mode=PERSISTENT, headers=headers
            )
            async with asyncio.timeout(self._timeout):
                await channel.basic_publish(
                    part, exchange=self._stream, properties=properties, mandatory=True
                )

    @asynccontextmanager
    async def _reading(
        self, connection: AbstractConnection, offset: FieldValue
    ) -> AsyncIterator[asyncio.Queue[DeliveredMessage | None]]:
        """Deliveries from an offset on; ``None`` at the connection's end."""
        deliveries: asyncio.Queue[DeliveredMessage | None] = asyncio.Queue()
        frames.tolerate_strangers()

        async def on_delivery(message: DeliveredMessage) -> None:
            deliveries.put_nowait(message)

        with broker_calls(f"RabbitMQ did not let us read {self._stream!r}"):
            try:
                async with asyncio.timeout(self._timeout):
                    channel = await open_channel(connection, confirms=False)
                    channel.closing.add_done_callback(lambda _: deliveries.put_nowait(None))
                    await channel.basic_qos(prefetch_count=READ_AHEAD)
                    await channel.basic_consume(
                        self._stream, on_delivery, arguments={_OFFSET: offset}
                    )
            except dead_stream.REFUSALS as error:
                raise ArchiveRefused(
                    f"RabbitMQ lets us not read {self._stream!r}: {error}"
                ) from error
        yield deliveries

    async def _come(
        self, deliveries: asyncio.Queue[DeliveredMessage | None]
    ) -> DeliveredMessage | None:
        """The next one, acked; ``None`` where none has come in time.

        Raises:
            BrokerUnavailable: the connection has ended.
        """
        try:
            async with asyncio.timeout(self._timeout):
                message = await deliveries.get()
        except TimeoutError:
            return None
        if message is None:
            raise BrokerUnavailable(f"{self._stream!r}: the connection has ended")
        with broker_calls("RabbitMQ took no ack"):
            await message.channel.basic_ack(message.delivery_tag or 0)
        return message


def _parts_of(id_: str, body: bytes) -> dict[str, bytes]:
    """A body's messages by their ids, in order."""
    starts = range(0, max(1, len(body)), PART)
    return {_part_id(id_, n): body[at : at + PART] for n, at in enumerate(starts)}


def _part_id(id_: str, number: int) -> str:
    return f"{id_}.{number}" if number else id_


def _offset_of(message: DeliveredMessage) -> int:
    offset = (message.header.properties.headers or {}).get(_OFFSET)
    return offset if isinstance(offset, int) else -1
