"""Publishing: what counts as published, on a real RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from aio_pika.abc import AbstractConnection

from groupflow.broker import topology
from groupflow.broker.publisher import Outgoing, PublishFailed, publishing


async def test_a_message_to_a_deleted_queue_is_not_confirmed(
    rabbitmq_server: Any, connection: AbstractConnection, queue: str
) -> None:
    """RabbitMQ confirms what it could route nowhere, and hands it back first: that is no success.

    Found by the nemesis (seed 5001): what was published until somebody declared the queue anew
    counted as published, and was lost.
    """
    async with publishing(rabbitmq_server.url, queue) as publisher:
        await publisher.publish(Outgoing(b"{}"))
        await topology.delete(connection, queue)
        with pytest.raises(PublishFailed, match="was deleted"):
            await publisher.publish(Outgoing(b"{}"))
        with pytest.raises(PublishFailed, match=queue):
            await publisher.publish_all([Outgoing(b"{}"), Outgoing(b"{}")])
