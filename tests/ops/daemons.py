"""A daemon in this process, for what it tells of itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from groupflow import App
from groupflow.broker.publisher import Outgoing, publishing
from groupflow.daemon import Daemon
from groupflow.ops.tracing import open_tracing
from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.settings.model import Settings
from tests.deadlines import deadline


def settings_of(redis: RedisServer, rabbitmq: RabbitmqServer, **sections: Any) -> Settings:
    """On these servers, in a namespace and a queue of its own."""
    name = f"ops-{uuid4().hex}"
    servers = {
        "rabbitmq": {"url": rabbitmq.url, "queue": name},
        "redis": {"url": redis.url, "namespace": name, "timeout": deadline()},
        "workers": {"plain": 2, "grouped": 3, "lease": 60.0},
        "retry": {"max_attempts": 2, "interval": -0.01},
    }
    return Settings.model_validate({**servers, **sections})


@asynccontextmanager
async def serving(settings: Settings, app: App, **how: Any) -> AsyncIterator[Daemon]:
    daemon = Daemon(settings, app, "d1", **how)
    running = asyncio.create_task(daemon.run())
    try:
        yield daemon
    finally:
        daemon.stop()
        await running


async def publish(settings: Settings, *messages: Outgoing) -> None:
    url, tracing = settings.rabbitmq_url(), open_tracing(settings)
    async with publishing(url, settings.rabbitmq.queue, tracing=tracing) as publisher:
        await publisher.publish_all(messages)
