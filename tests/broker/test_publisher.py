"""Publishing: what counts as published, on a real RabbitMQ."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from groupflow.broker import topology
from groupflow.broker.connection import connect
from groupflow.broker.publisher import Outgoing, PublishFailed, publishing
from tests.deadlines import deadline


async def test_a_message_to_a_deleted_queue_is_not_confirmed(rabbitmq_server: Any) -> None:
    """RabbitMQ confirms what it could route nowhere; found by the nemesis as S1."""
    queue = f"publisher-{uuid4().hex}"
    async with publishing(rabbitmq_server.url, queue) as publisher:
        await publisher.publish(Outgoing(b"{}"))
        connection = await connect(
            rabbitmq_server.url, heartbeat=10, timeout=deadline(), name="test"
        )
        await topology.delete(connection, queue)
        await connection.close()
        with pytest.raises(PublishFailed, match="was deleted"):
            await publisher.publish(Outgoing(b"{}"))
        with pytest.raises(PublishFailed, match=queue):
            await publisher.publish_all([Outgoing(b"{}"), Outgoing(b"{}")])
