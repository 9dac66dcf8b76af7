"""Publishes the demo's messages as a client of the company would: in order, each one confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from groupflow.broker.publisher import Outgoing, publishing
from groupflow.demo.progress import Progress
from groupflow.demo.servers import Servers
from groupflow.demo.tasks import ImportTask, message_id


async def publish(
    servers: Servers, run: str, tasks: Sequence[ImportTask], progress: Progress
) -> None:
    """Publish all tasks; `progress` counts what the broker has confirmed.

    Raises:
        PublishFailed: the broker refused a message.
        BrokerUnavailable: the broker does not answer.
    """

    def count() -> None:
        progress.published += 1

    messages = (Outgoing(task.body, task.type, message_id(run, task.number)) for task in tasks)
    async with publishing(servers.rabbitmq, servers.name) as publisher:
        await publisher.publish_all(messages, on_confirm=count)
