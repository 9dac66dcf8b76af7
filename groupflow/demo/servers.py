"""The demo's servers: private ones, or those that a configuration file names.

The demo checks the latter before it starts, and leaves them as they were.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from groupflow.broker import topology
from groupflow.broker.connection import address_of, close_quietly, connect
from groupflow.core.errors import GroupflowError, reaching
from groupflow.demo.screen import step
from groupflow.servers import private_servers
from groupflow.settings.load import PREFIX, load_settings
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys

_TIMEOUT = 5.0  # seconds for a connection and for each answer


@dataclass(frozen=True, slots=True)
class Servers:
    """Two running servers, and the demo's own name on them."""

    rabbitmq: str  # its URL, password included: never to be shown
    redis: str  # the same
    name: str  # of the queue, and of the keys' namespace; no other program has it

    def environment(self) -> dict[str, str]:
        """The environment of a daemon that works on these servers."""
        # Other variables that configure groupflow are meant for other daemons.
        mine = {key: text for key, text in os.environ.items() if not key.startswith(PREFIX)}
        mine.pop("CREDENTIALS_DIRECTORY", None)
        for section, url in (("RABBITMQ", self.rabbitmq), ("REDIS", self.redis)):
            mine[f"{PREFIX}{section}__URL"] = url
            mine[f"{PREFIX}{section}__ALLOW_PLAINTEXT"] = "true"  # the file had to say so already
        names = {f"{PREFIX}RABBITMQ__QUEUE": self.name, f"{PREFIX}REDIS__NAMESPACE": self.name}
        return mine | names


def servers_for(config: Path | None, console: Console) -> AbstractAsyncContextManager[Servers]:
    """The servers that a file names, or private ones, which end with the block.

    Raises what `load_settings` and `private_servers` do, and `ServerUnreachable`.
    """
    name = f"groupflow-demo-{secrets.token_hex(4)}"
    return _private(name, console) if config is None else _existing(config, name, console)


@asynccontextmanager
async def _private(name: str, console: Console) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        with step(console, "Starting a private RabbitMQ and Redis"):
            started = await stack.enter_async_context(private_servers())
        yield Servers(started.rabbitmq.url, started.redis.url, name)


@asynccontextmanager
async def _existing(config: Path, name: str, console: Console) -> AsyncIterator[Servers]:
    """The servers that a configuration names; the demo's queue and keys go at the end."""
    settings = load_settings(config)
    servers = Servers(settings.rabbitmq_url(), settings.redis_url(), name)
    store = StoreClient(servers.redis, Keys(name), timeout=_TIMEOUT)
    reach = partial(
        connect, servers.rabbitmq, heartbeat=10, timeout=_TIMEOUT, name="groupflow demo"
    )
    shown = f"Using {settings.rabbitmq.url} and {settings.redis.url} under the name {name}"
    try:
        with step(console, shown), reaching("RabbitMQ", address_of(servers.rabbitmq)):
            await close_quietly((await reach()).close())
            with reaching("Redis", store.address):
                await store.ping()
        try:
            yield servers
        finally:
            with suppress(GroupflowError):  # RabbitMQ may be gone by now, and Redis too
                connection = await reach()
                await topology.delete(connection, name)
                await close_quietly(connection.close())
            with suppress(GroupflowError):
                await store.erase_namespace()
    finally:
        await store.close()
