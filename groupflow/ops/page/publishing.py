"""Publishes a task for the API, through RabbitMQ and with its confirm, like any publisher."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import structlog
from pydantic import Field

from groupflow.broker.application import Publisher
from groupflow.broker.publisher import Message, Outgoing
from groupflow.core.errors import (
    BrokerUnavailable,
    GroupflowError,
    HeadersTooLarge,
    PublishFailed,
    Unroutable,
)
from groupflow.core.routing import MAX_SECONDS, Router
from groupflow.ops.page.endpoints import Caller, Endpoint
from groupflow.ops.page.facts import PageContext
from groupflow.ops.page.problems import RequestRefused
from groupflow.ops.page.shapes import Input, Key, Published
from groupflow.settings.model import Settings

log = structlog.get_logger("groupflow.page")

CONFIRM = 10.0  # seconds that RabbitMQ has to take a task
MOST_HEADERS = 100
_ELSEWHERE = frozenset({"CC", "BCC"})  # headers by which RabbitMQ hands out copies
_Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
_Relative = Annotated[float, Field(ge=-MAX_SECONDS, le=MAX_SECONDS)]


class NewTask(Input):
    """A task to publish."""

    body: dict[str, Any] = Field(description="The message's body, which routing reads.")
    type: Key | None = Field(None, description="The task's type; none where the body names it.")
    id: Key | None = Field(
        None, description="The task's id: sent again under it, it is one task. Fresh without one."
    )
    headers: Annotated[dict[str, Any], Field(max_length=MOST_HEADERS)] = Field(default_factory=dict)
    priority: _Relative | None = Field(
        None, description="Seconds by which it counts as older than it is."
    )
    delay: _Seconds | None = Field(None, description="Seconds before which it may not run.")


class Publishing:
    """The endpoint that publishes, over one connection, which is opened with the first task."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._settings: Settings | None = None  # the settings that the publisher was made from
        self._publisher: Publisher | None = None

    async def close(self) -> None:
        """Close the connection, if one is open."""
        if self._publisher is not None:
            await self._publisher.close()

    @Endpoint(
        "POST",
        "/tasks",
        "Publish a task; it is answered once RabbitMQ has it",
        right="publish",
        may_be_unfit=True,
    )
    async def _publish(self, asked: NewTask, caller: Caller) -> Published:
        settings = self._context.facts.settings
        given = {name: value for name, value in asked if value is not None}
        try:
            check(message := Message(**given), settings)
            id_ = await self._publish_by_one(message)
        except (Unroutable, HeadersTooLarge) as error:
            raise RequestRefused(
                HTTPStatus.UNPROCESSABLE_ENTITY, f"Not published: {error}"
            ) from None
        except (PublishFailed, BrokerUnavailable) as error:
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{error}. It may have been taken: send it again under the same id.",
            ) from error
        name = caller.holder.name if caller.holder else None
        log.debug("task.published", task=id_, token=name, peer=caller.peer)
        return Published(id_)

    async def _publish_by_one(self, message: Message) -> str:
        while True:
            publisher = await self._publisher_by(self._context.facts.settings)
            try:
                return await publisher.publish(message)
            except GroupflowError:
                if publisher is self._publisher:
                    raise
                # A reload has closed it meanwhile: under the same id it is the same task.

    async def _publisher_by(self, settings: Settings) -> Publisher:
        """The publisher; a new one after a reload, which may have changed the groups."""
        if self._publisher is None or self._settings is not settings:
            before, self._settings = self._publisher, settings
            self._publisher = Publisher.from_settings(settings, timeout=CONFIRM)
            if before is not None:
                await before.close()
        return self._publisher


def check(message: Message, settings: Settings, router: Router | None = None) -> Outgoing:
    """The message as it goes out, once it is clear that it would become a task.

    `router` is that of the settings, where one is made for many messages.

    Raises:
        Unroutable: it would be a dead letter from the start; the reason says why.
    """
    if found := sorted(_ELSEWHERE & message.headers.keys()):
        raise Unroutable(f"the header {found[0]} would send it to other queues than groupflow's")
    outgoing = message.checked(settings.rabbitmq.max_headers)
    most = settings.rabbitmq.max_body
    if len(outgoing.body) > most:
        raise Unroutable(
            f"the body has {len(outgoing.body)} bytes, over rabbitmq.max_body = {most}"
        )
    (router or settings.router()).route(outgoing.body, outgoing.headers, type=outgoing.type)
    return outgoing
