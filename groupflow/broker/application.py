"""An application's side: publish tasks, over as many connections as that takes.

A publisher replaces a connection that ends. It publishes what that left unconfirmed again, under
the same ids, in the same order. RabbitMQ took a prefix of what was sent, and groupflow drops ids it
has seen. So each message is one task, in its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel

from groupflow.broker.connection import address_of, close_quietly, connect, open_channel
from groupflow.broker.messages import Body, Message
from groupflow.broker.partitions import declare
from groupflow.broker.publisher import IN_FLIGHT, Address, Outgoing, TermPublisher
from groupflow.broker.synchronous import SyncPublisher
from groupflow.core.backoff import Backoff
from groupflow.core.errors import (
    BrokerUnavailable,
    ConfirmTimeout,
    GroupflowError,
    PublishFailed,
    Unroutable,
)
from groupflow.core.headers import MAX_HEADERS
from groupflow.core.outages import Outage

if TYPE_CHECKING:
    from groupflow.settings.model import Settings

HANDSHAKE = 10.0  # seconds for one try to connect
HEARTBEAT = 10  # seconds

log = logging.getLogger("groupflow.publisher")  # the application's own logging


class Publisher:
    """Publishes to groupflow's queue; use it as an async context manager.

    One may be shared by all coroutines of an event loop.

    ```python
    async with Publisher("amqp://localhost/") as publisher:
        await publisher.publish({"app_name": "crm", "tenant_id": 42}, type="import.contacts")
    ```
    """

    def __init__(
        self,
        url: str | Sequence[str],
        queue: str = "groupflow.jobs",
        *,
        partitions: int = 1,
        groups: Sequence[Mapping[str, Any]] = (),
        fields: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        declare: bool = False,
        ca_file: str = "",
        cert_file: str = "",
        key_file: str = "",
        allow_plaintext: bool = False,
        max_headers: int = MAX_HEADERS,
    ) -> None:
        """Check where and how to connect; nothing connects yet.

        Args:
            url: ``amqp://`` or ``amqps://user:password@host:port/vhost``; or several, of the nodes
                of one cluster.
            queue: where daemons take messages from.
            partitions: as ``[rabbitmq]`` of the daemons' configuration. Where it is over 1, their
                ``[[groups]]`` and ``[fields]`` have to be given too: groups choose the queue.
            groups: a mapping for each ``[[groups]]``.
            fields: what ``[fields]`` has.
            timeout: seconds that a message may go without a confirm, new connections included.
            declare: declare the queue where it is missing; the daemons do so too, and publishers
                need not have the right to.
            ca_file: as ``[rabbitmq]`` of the configuration, as are the next three.
            cert_file: our own certificate.
            key_file: its key.
            allow_plaintext: whether a connection to another machine may go without TLS.
            max_headers: bytes of a message's headers, as ``[rabbitmq]`` of the configuration.

        Raises:
            ConfigError: one of them can't be used; it names which, and what to do.
        """
        section = {
            "url": url if isinstance(url, str) else list(url),
            "queue": queue,
            "partitions": partitions,
            "ca_file": ca_file,
            "cert_file": cert_file,
            "key_file": key_file,
            "allow_plaintext": allow_plaintext,
            "max_headers": max_headers,
        }
        settings = checked(section, groups, fields)
        self._url = settings.rabbitmq_url()
        self._address = Address(queue, settings.router() if partitions > 1 else None)
        self._timeout = timeout
        self._max_headers = max_headers
        self._declared = (queue, partitions) if declare else None
        self._afresh()

    @classmethod
    def from_config(cls, file: Path | str | None = None, *, timeout: float = 30.0) -> Self:
        """A publisher for the server and the queue that a configuration names.

        Args:
            file: the TOML file; ``None`` as for ``groupflow run`` without ``--config``.
            timeout: seconds that a message may go without a confirm.

        Raises:
            ConfigError: the configuration can't be used.
        """
        from groupflow.settings.load import load_settings  # noqa: PLC0415  few need it

        settings = load_settings(Path(file) if file is not None else None)
        return cls.from_settings(settings, timeout=timeout)

    @classmethod
    def from_settings(cls, settings: Settings, *, timeout: float = 30.0) -> Self:
        """The same, by a configuration that was read."""
        rabbitmq = settings.rabbitmq
        return cls(
            rabbitmq.url.get_secret_value(),
            rabbitmq.queue,
            partitions=rabbitmq.partitions,
            groups=[dict(rule) for rule in settings.groups],
            fields=dict(settings.fields),
            timeout=timeout,
            ca_file=rabbitmq.ca_file,
            cert_file=rabbitmq.cert_file,
            key_file=rabbitmq.key_file,
            allow_plaintext=rabbitmq.allow_plaintext,
            max_headers=rabbitmq.max_headers,
        )

    def sync(self) -> SyncPublisher:
        """The same for code without an event loop: Django, Flask, Celery, a script.

        It has a loop of its own, in a thread that starts with the first publish; in each process
        that was forked off since, another. Threads may share it.
        """
        return SyncPublisher(lambda: copy(self)._afresh())

    def _afresh(self) -> Self:
        """Forget connections and loops: they belong to another thread or process."""
        self._terms = Terms(self._url, self._address, self._timeout, declared=self._declared)
        self._many = asyncio.Lock()
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        return self

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect. Nothing has to call it: publishing connects as well.

        Raises:
            BrokerUnavailable: no answer within `timeout`.
            ServerUnreachable: the credentials were refused.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._terms.reach()
        except TimeoutError:
            raise self._terms.unavailable() from self._terms.trouble

    async def close(self) -> None:
        """Close the connection; nothing can be published any more."""
        await self._terms.close()

    async def publish(
        self,
        body: Body,
        *,
        type: str | None = None,
        id: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: float | None = None,
        delay: float | None = None,
    ) -> str:
        """Publish one message and wait until RabbitMQ has confirmed that it is safe.

        Messages of one group keep their order where each is awaited before the next; for many at
        once see `publish_many`.

        Args:
            body: a JSON object: bytes or text as they are, or a mapping to be written as JSON.
            type: the task type; ``None`` where the body names it.
            id: the task's id; fresh where none is given. After an error, publish again under the
                same id, and it is one task.
            headers: AMQP headers.
            priority: seconds by which the task counts as older than it is.
            delay: seconds before which it may not run.

        Returns:
            The id.

        Raises:
            Unroutable: it would be a dead letter from the start; nothing was sent.
            QueueMissing: there is no such queue.
            PublishRefused: the queue is full, or the user may not publish; or the headers are over
                RabbitMQ's frame.
            ConfirmTimeout: no confirm within `timeout`; it may have been taken.
            BrokerUnavailable: no connection within `timeout`; it may have been taken.
            ServerUnreachable: the credentials were refused.
        """
        fresh = uuid4().hex if id is None else id
        message = Message(body, type, fresh, headers or {}, priority, delay)
        outgoing = message.checked(self._max_headers)
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                await self._publish(outgoing)
        except TimeoutError:
            raise self._late(fresh) from self._terms.trouble
        return fresh

    async def publish_many(self, messages: Iterable[Message]) -> list[str]:
        """Publish messages in order, up to 200 of them unconfirmed at once.

        Args:
            messages: in the order that their groups are to keep; taken as they are needed.

        Returns:
            Their ids, all confirmed.

        Raises:
            Unroutable: one would be a dead letter from the start. Those before it are published.
            PublishFailed: one was not taken, as for `publish`. The error's `confirmed` says how
                many of the first ones are safe: give the rest again, as the same objects.
            BrokerUnavailable: no connection for `timeout` seconds; its `confirmed` says the same.
            ServerUnreachable: the credentials were refused.
        """
        async with self._many:
            return await _Run(self._timeout, messages, self._max_headers).publish(self._terms)

    async def _publish(self, message: Outgoing) -> None:
        """Publish one message, on one connection after another."""
        while True:
            term = await self._terms.reach()
            try:
                return await term.publisher.publish(message)
            except BrokerUnavailable as error:
                await self._terms.lose(term, error)

    def _late(self, id_: str) -> GroupflowError:
        if self._terms.trouble is not None:
            return self._terms.unavailable()
        return ConfirmTimeout(
            f"no confirm for message {id_!r} within {self._timeout:g} s: RabbitMQ's memory or disk "
            "alarm blocks publishers, or its queue has no leader"
        )


class _Run:
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
                try:
                    async with asyncio.timeout_at(self._progress + self._timeout):
                        term = await terms.reach()
                except TimeoutError:
                    raise terms.unavailable() from terms.trouble
                try:
                    await term.publisher.publish_all(self._feed(), self._on_confirm)
                except BrokerUnavailable as error:
                    await terms.lose(term, error)
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
        for message in self._source:
            try:
                outgoing = message.checked(self._max_headers)
            except Unroutable as refusal:
                self._refusal = refusal  # raised once the messages before it are confirmed
                return
            self._under_way.append(outgoing)
            self._ids.append(message.id)
            yield outgoing

    def _on_confirm(self) -> None:
        self._under_way.popleft()
        self._confirmed += 1
        self._confirm_clock()

    def _confirm_clock(self) -> None:
        self._progress = asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class Term:
    """A connection's life."""

    connection: AbstractConnection
    channel: AbstractChannel
    publisher: TermPublisher


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
        self._term: Term | None = None
        self.trouble: BrokerUnavailable | None = None  # why there is none now
        self._outage = Outage(monotonic)
        self._is_closed = False
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the connection; none follows."""
        self._is_closed = True
        await self._end(self._term)

    async def reach(self) -> Term:
        """The open term, or a new one, with no time limit."""
        backoff = Backoff()
        async with self._opening:
            while True:
                if self._is_closed:
                    raise GroupflowError("the publisher is closed")
                if self._term is not None and not self._term.channel.is_closed:
                    return self._term
                await self._end(self._term)
                try:
                    self._term = await self._begin()
                    self.trouble = None
                    self._tell_of_return()
                except BrokerUnavailable as error:
                    self.trouble = error
                    self._tell_of(error)
                    await asyncio.sleep(backoff.next())

    async def _begin(self) -> Term:
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
        return Term(connection, channel, TermPublisher(channel, self._address, self._timeout))

    async def lose(self, term: Term, error: BrokerUnavailable) -> None:
        """Give a term up, unless another publisher did so and opened the next."""
        self.trouble = error
        self._tell_of(error)
        if self._term is term:
            await self._end(term)
        await asyncio.sleep(Backoff.shortest)

    async def _end(self, term: Term | None) -> None:
        if term is not None:
            self._term = None
            await close_quietly(term.connection.close())

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


def checked(
    section: dict[str, Any],
    groups: Sequence[Mapping[str, Any]],
    fields: Mapping[str, str] | None,
) -> Settings:
    """The settings that `[rabbitmq]`, `[[groups]]` and `[fields]` make.

    Raises:
        ConfigError: one of them can't be used.
    """
    from pydantic import ValidationError  # noqa: PLC0415  the settings take their time to import

    from groupflow.core.errors import ConfigError  # noqa: PLC0415
    from groupflow.settings.model import Settings  # noqa: PLC0415
    from groupflow.settings.problems import problems_of  # noqa: PLC0415

    found = {"rabbitmq": section, "groups": list(groups), "fields": dict(fields or {})}
    try:
        return Settings.model_validate(found)
    except ValidationError as error:
        raise ConfigError(problems_of(error, {})) from None
