"""Replies to what a publisher requested: one queue for all, over a connection of its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiormq
import orjson
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.common import FieldValue

from groupflow.broker.connection import (
    HEARTBEAT,
    broker_calls,
    close_quietly,
    connect,
    open_channel,
)
from groupflow.broker.terms import HANDSHAKE, closed
from groupflow.core.backoff import Backoff
from groupflow.core.errors import (
    BrokerUnavailable,
    GroupflowError,
    ResultRefused,
    TaskCancelled,
    TaskDead,
    TaskDropped,
    TaskExpired,
    TaskNotDone,
    TaskSuperseded,
)

UNUSED = 600_000  # milliseconds without a consumer after which RabbitMQ drops the queue
# From 4.3 on RabbitMQ takes none that is neither durable nor of one connection alone.
_KIND: dict[str, FieldValue] = {"x-expires": UNUSED, "x-queue-type": "classic"}
_ENDS: dict[str, type[TaskNotDone]] = {
    "dead": TaskDead,
    "cancelled": TaskCancelled,
    "expired": TaskExpired,
    "superseded": TaskSuperseded,
    "dropped": TaskDropped,
}


class Replies:
    """A reply queue, named by RabbitMQ, and the requests that wait for what comes there.

    The queue outlives a lost connection for a while, and so do the replies in it.
    """

    def __init__(self, url: str) -> None:
        """Connects to nothing yet."""
        self._url = url
        self._queue = ""
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._opening, self._trying = asyncio.Lock(), asyncio.Lock()
        self._trouble: BrokerUnavailable | None = None  # of the last try
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}  # by correlation id
        self._return: asyncio.Task[None] | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Close the connection. What waits for a reply is told so."""
        self._is_closed = True
        if self._return is not None:
            self._return.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(closed())
                future.exception()  # asyncio needs not tell of it where none awaits it any more
        await self._end()

    async def queue(self) -> str:
        """The name of the queue, which is consumed from here on.

        Raises:
            BrokerUnavailable: no answer.
            GroupflowError: the publisher is closed.
            ServerUnreachable: the credentials were refused.
        """
        async with self._opening:
            if not self._is_closed and (self._channel is None or self._channel.is_closed):
                await self._end()
                await self._begin()
            if self._is_closed:
                await self._end()  # of what has opened meanwhile
                raise closed()
            return self._queue

    async def queue_within(self, seconds: float) -> str:
        """The same, tried again for so long while there is no answer; errors as of `queue`."""
        backoff = Backoff()
        try:
            # One tries for all: many that wait are as one to a server that starts.
            async with asyncio.timeout(seconds), self._trying:
                self._trouble = None
                while True:
                    try:
                        return await self.queue()
                    except BrokerUnavailable as error:
                        self._trouble = error
                        await asyncio.sleep(backoff.next())
        except TimeoutError:
            cause = self._trouble or "no queue for replies"
            raise BrokerUnavailable(f"for {seconds:g} s: {cause}") from self._trouble

    def expect(self, correlation_id: str) -> asyncio.Future[dict[str, Any]]:
        """What will have the reply; to be given up by `forget`."""
        future = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return future

    def forget(self, correlation_id: str) -> None:
        """Nothing waits for that reply any more."""
        self._waiting.pop(correlation_id, None)

    async def _begin(self) -> None:
        connection = await connect(
            self._url, heartbeat=HEARTBEAT, timeout=HANDSHAKE, name="groupflow replies"
        )
        try:
            with broker_calls("RabbitMQ gave no queue for replies"):
                async with asyncio.timeout(HANDSHAKE):
                    channel = await self._consume(connection)
        except BaseException:
            await close_quietly(connection.close())
            raise
        self._connection, self._channel = connection, channel
        channel.closing.add_done_callback(lambda _: self._come_back())
        channel.on_consumer_cancel_callbacks.add(self._on_cancel)

    async def _consume(self, connection: AbstractConnection) -> AbstractChannel:
        """Consume the queue that there was, or a new one."""
        if self._queue:
            channel = await open_channel(connection, confirms=False)
            with suppress(aiormq.exceptions.ChannelNotFoundEntity):
                await channel.basic_consume(self._queue, self._on_reply)
                return channel
        channel = await open_channel(connection, confirms=False)
        declared = await channel.queue_declare("", durable=True, arguments=_KIND)
        self._queue = str(declared.queue)
        await channel.basic_consume(self._queue, self._on_reply)
        return channel

    async def _on_reply(self, message: DeliveredMessage) -> None:
        self._take(message)
        # Only now: what is lost on its way here comes again over the next connection.
        with suppress(BrokerUnavailable), broker_calls("RabbitMQ took no ack"):
            await message.channel.basic_ack(message.delivery_tag or 0)

    def _take(self, message: DeliveredMessage) -> None:
        future = self._waiting.get(message.header.properties.correlation_id or "")
        if future is None or future.done():
            return  # it came twice, or too late
        with suppress(ValueError):
            body = orjson.loads(message.body)
            if isinstance(body, dict):
                future.set_result(body)

    def _on_cancel(self, *_: object) -> None:
        """The queue was deleted: the next request gets another one."""
        self._channel = None

    def _come_back(self) -> None:
        """The connection is lost: open another while requests wait."""
        if self._waiting and self._connection is not None:
            self._return = asyncio.ensure_future(self._reopen())

    async def _reopen(self) -> None:
        while self._waiting:
            try:
                await self.queue()
            except GroupflowError:  # what waits is told by its own time limit
                await asyncio.sleep(1.0)
            else:
                return

    async def _end(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await close_quietly(connection.close())


def result_of(reply: dict[str, Any]) -> Any:
    """The result that a reply tells.

    Raises:
        TaskNotDone: the task ended otherwise; its class says how.
        ResultRefused: it is done, and its result could not be told.
    """
    event, id_ = reply.get("event"), str(reply.get("id"))
    if event != "done":
        end = _ENDS.get(str(event), TaskNotDone)
        raise end(id_, str(event), str(reply.get("reason") or ""))
    if "result_error" in reply:
        raise ResultRefused(f"task {id_!r} is done, but {reply['result_error']}")
    return reply.get("result")
