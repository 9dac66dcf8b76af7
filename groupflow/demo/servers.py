"""Which servers the demo uses: private ones, or those that a configuration file names.

The latter are checked before the demo, and left as they were after it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from groupflow.broker import topology
from groupflow.broker.connection import address_of, close_quietly, connect
from groupflow.core.errors import (
    BrokerUnavailable,
    GroupflowError,
    ServerUnreachable,
    StoreUnavailable,
)
from groupflow.demo.screen import step
from groupflow.servers.launch import private_servers
from groupflow.settings.load import PREFIX, load_settings
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys

_TIMEOUT = 5.0  # seconds for a connection and for each answer


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

    def environment(self) -> dict[str, str]:
        """The environment of a daemon that works on these servers."""
        # Whatever else configures groupflow here is meant for other daemons than the demo's.
        mine = {key: text for key, text in os.environ.items() if not key.startswith(PREFIX)}
        mine.pop("CREDENTIALS_DIRECTORY", None)
        for section, url in (("RABBITMQ", self.rabbitmq), ("REDIS", self.redis)):
            mine[f"{PREFIX}{section}__URL"] = url
            mine[f"{PREFIX}{section}__ALLOW_PLAINTEXT"] = "true"  # the file had to say so already
        names = {f"{PREFIX}RABBITMQ__QUEUE": self.name, f"{PREFIX}REDIS__NAMESPACE": self.name}
        return mine | names


@asynccontextmanager
async def servers_for(config: Path | None, name: str, console: Console) -> AsyncIterator[Servers]:
    """The servers for one demo, ready for use.

    Args:
        config: the file that names them; ``None``: private ones, which end with the block.
        name: of the demo's queue and namespace, so that demos at the same time don't meet.
        console: where it is said what happens.

    Raises:
        ConfigError: the configuration can't be used.
        ServerUnreachable: a server that it names does not answer.
        MissingServer: a private server's program is not installed.
        ServerFailed: a private server did not come up.
    """
    async with AsyncExitStack() as stack:
        if config is not None:
            yield await stack.enter_async_context(_existing(config, name, console))
            return
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
        with step(console, shown), _named("RabbitMQ", address_of(servers.rabbitmq)):
            await close_quietly((await reach()).close())
            with _named("Redis", store.address):
                await store.ping()
        try:
            yield servers
        finally:
            with suppress(GroupflowError):  # if RabbitMQ is gone by now, so be it; Redis the same
                connection = await reach()
                await topology.delete(connection, name)
                await close_quietly(connection.close())
            with suppress(GroupflowError):
                await store.erase_namespace()
    finally:
        await store.close()


@contextmanager
def _named(server: str, address: str) -> Iterator[None]:
    try:
        yield
    except (BrokerUnavailable, StoreUnavailable) as error:
        raise ServerUnreachable(server, address, str(error.__cause__ or error)) from None
