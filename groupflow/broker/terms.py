"""A publisher's connections: the open one, or the next; and many messages over them, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from time import monotonic

from aio_pika.abc import AbstractConnection

from groupflow.broker.connection import HEARTBEAT, close_quietly, connect, open_channel
from groupflow.broker.partitions import declare
from groupflow.broker.publisher import Address, Message, Outgoing, TermPublisher
from groupflow.core.backoff import Backoff, Outage
from groupflow.core.errors import BrokerUnavailable, GroupflowError, PublishFailed, Unroutable
from groupflow.settings.transport import address_of

HANDSHAKE = 10.0  # seconds for one try to connect

log = logging.getLogger("groupflow.publisher")  # the application's own logging


class Terms:
    """The open connection, or the next one: publishers share it, and report it lost."""

    def __init__(
        self, url: str, address: Address, timeout: float, *, declared: tuple[str, int] | None
    ) -> None:
        """Bind how to connect.

        Args:
            url: of one node or several.
            address: which queue a message goes to.
            timeout: seconds that a message may go without a confirm.
            declared: a queue and the number of its partitions, to be declared where they are
                missing; ``None`` for publishers that don't.
        """
        self._url = url
        self._address = address
        self._timeout = timeout
        self._declared = declared
        self._connection: AbstractConnection | None = None
        self._publisher: TermPublisher | None = None  # over it
        self.trouble: BrokerUnavailable | None = None  # why there is none now
        self._outage = Outage(monotonic)
        self._is_closed = False
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the connection; none follows."""
        self._is_closed = True
        await self._end()

    async def reach(self) -> TermPublisher:
        """A publisher over the open connection, or a new one, with no time limit."""
        backoff = Backoff()
        async with self._opening:
            while True:
                if self._is_closed:
                    await self._end()  # of what has opened meanwhile
                    raise closed()
                if self._publisher is not None and not self._publisher.is_closed:
                    return self._publisher
                await self._end()
                try:
                    await self._begin()
                    self.trouble = None
                    self._tell_of_return()
                except BrokerUnavailable as error:
                    self.trouble = error
                    self._tell_of(error)
                    await asyncio.sleep(backoff.next())

    async def reach_by(self, moment: float) -> TermPublisher:
        """The same until a moment of the loop's clock.

        Raises:
            BrokerUnavailable: there was none.
        """
        try:
            async with asyncio.timeout_at(moment):
                return await self.reach()
        except TimeoutError:
            raise self.unavailable() from self.trouble

    async def _begin(self) -> None:
        connection = await connect(
            self._url, heartbeat=HEARTBEAT, timeout=HANDSHAKE, name="groupflow publisher"
        )
        try:
            if self._declared is not None:
                await declare(connection, *self._declared)
            channel = await open_channel(connection, confirms=True)
        except BaseException:
            await close_quietly(connection.close())
            raise
        self._connection = connection
        self._publisher = TermPublisher(channel, self._address, self._timeout)

    async def lose(self, publisher: TermPublisher, error: BrokerUnavailable) -> None:
        """Give its connection up, unless another call did so and opened the next."""
        self.trouble = error
        self._tell_of(error)
        if self._publisher is publisher:
            await self._end()
        await asyncio.sleep(Backoff.shortest)

    async def _end(self) -> None:
        connection, self._connection, self._publisher = self._connection, None, None
        if connection is not None:
            await close_quietly(connection.close())

    def _tell_of(self, error: BrokerUnavailable) -> None:
        """Say that RabbitMQ is away, once and then once a minute."""
        facts = self._outage.failed()
        if facts is not None:
            since = f", for {facts['away_for']:g} s now" if facts else ""
            log.warning("publishing waits%s: %s", since, error)

    def _tell_of_return(self) -> None:
        away_for = self._outage.answered()
        if away_for is not None:
            where = address_of(self._url)
            log.info("publishing goes on: RabbitMQ at %s was away for %g s", where, away_for)

    def unavailable(self) -> BrokerUnavailable:
        """What to raise where there was none for `timeout` seconds."""
        cause = self.trouble or "no answer to the handshake"
        return BrokerUnavailable(f"for {self._timeout:g} s: {cause}")


def closed() -> GroupflowError:
    return GroupflowError("the publisher is closed")


class PublishedInOrder:
    """One `publish_many`: messages confirmed, in flight and to come."""

    def __init__(self, timeout: float, messages: Iterable[Message], max_headers: int) -> None:
        self._timeout = timeout
        self._max_headers = max_headers
        self._source = iter(messages)
        self._under_way: deque[Outgoing] = deque()
        self._ids: list[str] = []
        self._confirmed = 0
        self._refusal: Unroutable | None = None
        self._progress = 0.0

    async def publish(self, terms: Terms) -> list[str]:
        self._confirm_clock()
        while True:
            try:
                publisher = await terms.reach_by(self._progress + self._timeout)
                try:
                    await publisher.publish_all(self._feed(), self._on_confirm)
                except BrokerUnavailable as error:
                    await terms.lose(publisher, error)
                    continue
            except (PublishFailed, BrokerUnavailable) as error:
                error.confirmed = self._confirmed
                raise
            if self._refusal is not None:
                raise self._refusal
            return self._ids

    def _feed(self) -> Iterator[Outgoing]:
        """What a lost connection left unconfirmed, then the rest."""
        yield from tuple(self._under_way)
        if self._refusal is not None:
            return
        for message in self._source:
            try:
                outgoing = message.checked(self._max_headers)
            except Unroutable as refusal:
                self._refusal = refusal  # raised once the messages before it are confirmed
                return
            self._confirm_clock()  # it may have been long in coming
            self._under_way.append(outgoing)
            self._ids.append(message.id)
            yield outgoing

    def _on_confirm(self) -> None:
        self._under_way.popleft()
        self._confirmed += 1
        self._confirm_clock()

    def _confirm_clock(self) -> None:
        self._progress = asyncio.get_running_loop().time()
