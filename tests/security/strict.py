"""A RabbitMQ that says only to those who may configure a queue whether it is there."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.servers.proxy import Proxy, Way

_GREETING = 8  # bytes that come before the first frame
_HEAD = 7  # bytes of a frame before its content: kind, channel, size
_METHOD = 1
_QUEUE_DECLARE = b"\x00\x32\x00\x0a"
_NAME = 6  # where the length of the queue's name lies, behind the method and a reserved word
_PASSIVE = 1


class StrictBroker(Proxy):
    """Makes an older RabbitMQ refuse what 4.2.6 and 4.3.0 refuse, in its own words.

    They check a passive declare as any other. An older one checks the others alone: so a passive
    one is made one of them on its way. Only for users who may not declare.

    Attributes:
        asked: how many there were.
    """

    asked = 0

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        if way == "down":
            return await super()._pump(reader, writer, way)
        with suppress(OSError, asyncio.IncompleteReadError):
            writer.write(await reader.readexactly(_GREETING))
            while True:
                head = await reader.readexactly(_HEAD)
                content = await reader.readexactly(int.from_bytes(head[3:], "big") + 1)
                if head[0] == _METHOD and content.startswith(_QUEUE_DECLARE):
                    content = self._checked(content)
                writer.write(head + content)
                await writer.drain()

    def _checked(self, content: bytes) -> bytes:
        bits = _NAME + 1 + content[_NAME]
        self.asked += content[bits] & _PASSIVE
        return content[:bits] + bytes([content[bits] & ~_PASSIVE]) + content[bits + 1 :]
