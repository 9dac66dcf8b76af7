"""Which servers the demo uses: private ones, or those that a configuration file names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from groupflow.demo.existing import check_rabbitmq, check_redis, delete_queue, erase_keys
from groupflow.demo.handlers import DATABASE_VARIABLE
from groupflow.demo.screen import step
from groupflow.servers.launch import private_servers
from groupflow.settings.load import PREFIX, load_settings


@dataclass(frozen=True, slots=True)
class Servers:
    """Two running servers, and the demo's own corner of them.

    Attributes:
        rabbitmq: the URL, password included: never to be shown.
        redis: the same.
        name: the queue's name and the namespace of the keys; nobody else has it.
    """

    rabbitmq: str
    redis: str
    name: str

    def environment(self, database: Path) -> dict[str, str]:
        """The environment of a daemon that works on these servers and writes to this file."""
        # Whatever else configures groupflow here is meant for other daemons than the demo's.
        mine = {key: text for key, text in os.environ.items() if not key.startswith(PREFIX)}
        mine.pop("CREDENTIALS_DIRECTORY", None)
        return mine | {
            "GROUPFLOW_RABBITMQ__URL": self.rabbitmq,
            "GROUPFLOW_RABBITMQ__QUEUE": self.name,
            "GROUPFLOW_REDIS__URL": self.redis,
            "GROUPFLOW_REDIS__NAMESPACE": self.name,
            DATABASE_VARIABLE: str(database),
        }


@asynccontextmanager
async def servers_for(config: Path | None, run: str, console: Console) -> AsyncIterator[Servers]:
    """The servers for one demo, ready for use.

    Args:
        config: the file that names them; ``None``: private ones, which end with the block.
        run: a random name, so that demos at the same time don't meet.
        console: where it is said what happens.

    Raises:
        ConfigError: the configuration can't be used.
        ServerUnreachable: a server that it names does not answer.
        MissingServer: a private server's program is not installed.
        ServerFailed: a private server did not come up.
    """
    name = f"groupflow-demo-{run}"
    if config is not None:
        async with _existing(config, name, console) as servers:
            yield servers
        return
    async with AsyncExitStack() as stack:
        with step(console, "Starting a private RabbitMQ and Redis"):
            started = await stack.enter_async_context(private_servers())
        yield Servers(started.rabbitmq.url, started.redis.url, name)


@asynccontextmanager
async def _existing(config: Path, name: str, console: Console) -> AsyncIterator[Servers]:
    """The servers that a configuration names; the demo's queue and keys go at the end."""
    settings = load_settings(config)
    rabbitmq, redis = settings.rabbitmq.url, settings.redis.url
    servers = Servers(rabbitmq.get_secret_value(), redis.get_secret_value(), name)
    with step(console, f"Using {rabbitmq} and {redis} under the name {name}"):
        await check_rabbitmq(servers.rabbitmq)
        await check_redis(servers.redis, name)
    try:
        yield servers
    finally:
        await delete_queue(servers.rabbitmq, name)
        await erase_keys(servers.redis, name)
