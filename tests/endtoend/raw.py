"""Publishing what no well-behaved client sends: frames are made here, and may be spoilt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import aiormq
import pamqp.frame
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from tests.running import run

Properties = aiormq.spec.Basic.Properties
_BODY_FRAME = 100_000  # bytes a frame, below RabbitMQ's limit


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message down to its bytes.

    Attributes:
        body: its bytes.
        properties: its properties.
        spoil: pairs of bytes, each to be replaced in the header frame by others of that length.
    """

    body: bytes
    properties: Properties = field(default_factory=Properties)
    spoil: Sequence[tuple[bytes, bytes]] = ()

    def frames(self, channel: int, queue: str) -> bytes:
        """The message on the wire."""
        header = pamqp.frame.marshal(ContentHeader(0, len(self.body), self.properties), channel)
        for old, new in self.spoil:
            assert len(old) == len(new)
            assert old in header
            header = header.replace(old, new)
        publish = aiormq.spec.Basic.Publish(exchange="", routing_key=queue)
        bodies = [
            pamqp.frame.marshal(ContentBody(self.body[at : at + _BODY_FRAME]), channel)
            for at in range(0, len(self.body), _BODY_FRAME)
        ]
        return pamqp.frame.marshal(publish, channel) + header + b"".join(bodies)


def send_raw(url: str, queue: str, messages: Sequence[RawMessage]) -> None:
    """Publish messages in order; RabbitMQ has taken them all when this returns."""
    run(_send(url, queue, messages))


async def _send(url: str, queue: str, messages: Sequence[RawMessage]) -> None:
    connection = await aiormq.connect(url)
    try:
        channel = await connection.channel(publisher_confirms=False)
        for message in messages:
            payload = message.frames(channel.number, queue)
            await connection.write_queue.put(ChannelFrame(payload, should_close=False))
        # An answer on the same channel comes behind everything that was sent before.
        await channel.queue_declare(queue, passive=True)
    finally:
        await connection.close()
