"""A RabbitMQ that starts again, with partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupflow import Publisher, QueueMissing
from groupflow.broker.publisher import publishing
from groupflow.servers import RabbitmqServer
from groupflow.servers.kinds import HASH_EXCHANGE
from tests.broker.test_partitions import declare, messages, placed, router, taken_by_queue


async def test_a_restart_moves_no_group(tmp_path: Path) -> None:
    """Until the ring is whole again, what is published is handed back; then it is the same."""
    queue = "moves"
    async with RabbitmqServer(tmp_path, plugins=[HASH_EXCHANGE]) as server:
        await declare(server.url, queue, 12)  # sorted by name, 10 comes before 2
        seen: list[dict[str, str]] = []
        for _ in range(2):
            if seen:
                await server.restart()
                async with Publisher(server.url, queue, partitions=12) as application:
                    with pytest.raises(QueueMissing, match=queue):
                        await application.publish({"app_name": "crm", "g": "g"}, type="t")
            async with publishing(server.url, queue, partitions=12, router=router()) as publisher:
                await publisher.publish_all(messages(1))
            seen.append(placed(await taken_by_queue(server.url, queue, 12)))
        assert seen[0] == seen[1]
