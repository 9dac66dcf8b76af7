"""An application's side: publish tasks, over as many connections as that takes.

A publisher replaces a connection that ends. It publishes what that left unconfirmed again, under
the same ids, in the same order. RabbitMQ took a prefix of what was sent, and groupflow drops ids it
has seen. So each message is one task, in its place.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from groupflow.broker.blocking import SyncPublisher
from groupflow.broker.publisher import (
    IN_FLIGHT,
    Address,
    Body,
    Message,
    Outgoing,
    check_name,
    unconfirmed,
)
from groupflow.broker.replies import Replies, result_of
from groupflow.broker.terms import PublishedInOrder, Terms
from groupflow.core.errors import BrokerUnavailable, ConfigError
from groupflow.core.headers import MAX_HEADERS
from groupflow.core.routing import CANCEL

if TYPE_CHECKING:
    from groupflow.settings.model import Settings


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
            "max_values": sys.maxsize,  # daemons count them; groups choose the queue all the same
        }
        self._bind(checked(section, groups, fields), timeout, declares=declare)

    def _bind(self, settings: Settings, timeout: float, *, declares: bool) -> Self:
        rabbitmq = settings.rabbitmq
        self._url = settings.rabbitmq_url()
        router = settings.router() if rabbitmq.partitions > 1 else None
        self._address = Address(rabbitmq.queue, router)
        self._timeout = timeout
        self._max_headers = rabbitmq.max_headers
        self._declared = (rabbitmq.queue, rabbitmq.partitions) if declares else None
        return self._afresh()

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
        return cls.__new__(cls)._bind(settings, timeout, declares=False)

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
        self._replies = Replies(self._url)
        return self

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect. Nothing has to call it: publishing connects as well.

        Raises:
            BrokerUnavailable: no answer within `timeout`.
            ServerUnreachable: the credentials were refused.
        """
        await self._terms.reach_by(asyncio.get_running_loop().time() + self._timeout)

    async def close(self) -> None:
        """Close the connection; nothing can be published any more."""
        await self._replies.close()
        await self._terms.close()

    async def publish(
        self,
        body: Body | Message,
        *,
        type: str | None = None,
        id: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: float | None = None,
        delay: float | None = None,
        expires: float | None = None,
    ) -> str:
        """Publish one message and wait until RabbitMQ has confirmed that it is safe.

        Messages of one group keep their order where each is awaited before the next; for many at
        once see `publish_many`.

        Args:
            body: a JSON object: bytes or text as they are, or a mapping to be written as JSON; or a
                `Message`, and then nothing else.
            type: the task type; ``None`` where the body names it.
            id: the task's id; fresh where none is given. After an error, publish again under the
                same id, and it is one task.
            headers: AMQP headers.
            priority: seconds by which the task counts as older than it is.
            delay: seconds before which it may not run.
            expires: seconds after intake took it within which it has to start.

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
            TypeError: there is something beside a `Message`.
        """
        message = _message(
            body,
            type=type,
            id=id,
            headers=headers,
            priority=priority,
            delay=delay,
            expires=expires,
        )
        await self._publish_one(message)
        return message.id

    async def request(
        self,
        body: Body | Message,
        *,
        type: str | None = None,
        id: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: float | None = None,
        delay: float | None = None,
        expires: float | None = None,
        timeout: float = 60.0,
    ) -> Any:
        """Publish one message, and wait for the result of its task.

        All requests of a publisher share one queue for replies. A task whose id is known already
        is a duplicate, and gets no reply.

        Args:
            body: as for `publish`; so are the others.
            type: the task type.
            id: the task's id.
            headers: AMQP headers.
            priority: seconds by which the task counts as older than it is.
            delay: seconds before which it may not run.
            expires: seconds within which it has to start.
            timeout: seconds to wait for its end; the task goes on when they are over.

        Returns:
            What its handler gave as ``Done(result=…)``; ``None`` where it gave nothing.

        Raises:
            TimeoutError: it has not ended in time.
            TaskNotDone: it ended otherwise: a `TaskDead`, `TaskCancelled`, `TaskExpired`,
                `TaskSuperseded` or `TaskDropped`, with the reason.
            ResultRefused: it is done, and its result could not be told.
            GroupflowError: it was not published, as for `publish`.
        """
        message = _message(
            body,
            type=type,
            id=id,
            headers=headers,
            priority=priority,
            delay=delay,
            expires=expires,
        )
        asked = uuid4().hex
        async with asyncio.timeout(timeout):
            queue = await self._replies.queue_within(self._timeout)
            reply = self._replies.expect(asked)
            try:
                await self._publish_one(replace(message, reply_to=queue, correlation_id=asked))
                return result_of(await reply)
            finally:
                self._replies.forget(asked)

    async def cancel(
        self,
        id: str,
        body: Body = "{}",
        *,
        type: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Cancel a task, and wait until RabbitMQ has confirmed the message that says so.

        A task that waits ends; of one that runs the attempt is ended. One that is over, or that no
        daemon has heard of by then, is left alone. It errs as `publish` does; call it again then.

        Args:
            id: the task's id, as it was published.
            body: says whose task it is, by the same fields as the task's own body. Where the queue
                has several partitions, give that body itself: it leads to the same queue.
            type: the task's type, where there are several partitions.
            headers: AMQP headers, where the rules name some.
        """
        check_name("id", id)
        await self._publish_one(Message(body, type, headers={**(headers or {}), CANCEL: id}))

    async def _publish_one(self, message: Message) -> None:
        outgoing = message.checked(self._max_headers)
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                await self._publish(outgoing)
        except TimeoutError:
            trouble = self._terms.trouble
            late = self._terms.unavailable() if trouble else unconfirmed(message.id, self._timeout)
            raise late from trouble

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
            one = PublishedInOrder(self._timeout, messages, self._max_headers)
            return await one.publish(self._terms)

    async def _publish(self, message: Outgoing) -> None:
        """Publish one message, on one connection after another."""
        while True:
            publisher = await self._terms.reach()
            try:
                return await publisher.publish(message)
            except BrokerUnavailable as error:
                await self._terms.lose(publisher, error)


def _message(body: Body | Message, **given: Any) -> Message:
    """The message that a call is given, whole or in parts.

    Raises:
        TypeError: both at once.
    """
    said = {name: each for name, each in given.items() if each is not None}
    if not isinstance(body, Message):
        return Message(body, **said)
    if what := ", ".join(said):
        raise TypeError(
            f"publish(Message(…), {what}=…): a message has its own {what}; give it there"
        )
    return body


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

    from groupflow.settings.model import Settings  # noqa: PLC0415
    from groupflow.settings.problems import problems_of  # noqa: PLC0415

    found = {"rabbitmq": section, "groups": list(groups), "fields": dict(fields or {})}
    try:
        return Settings.model_validate(found)
    except ValidationError as error:
        raise ConfigError(problems_of(error, {})) from None
