"""A private Redis and RabbitMQ for `groupflow dev`, the demo and the tests; gone afterwards."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from groupflow.servers.kinds import HASH_EXCHANGE, RabbitmqServer, RedisServer
from groupflow.servers.process import ServerFailed
from groupflow.servers.server import MissingServer

__all__ = [
    "MissingServer",
    "PrivateServers",
    "RabbitmqServer",
    "RedisServer",
    "ServerFailed",
    "private_servers",
]


@dataclass(frozen=True, slots=True)
class PrivateServers:
    """A running Redis and a running RabbitMQ."""

    redis: RedisServer
    rabbitmq: RabbitmqServer


@asynccontextmanager
async def private_servers() -> AsyncIterator[PrivateServers]:
    """Start both at once in a temporary folder; stop them and remove the folder at the end.

    Also if the block is cancelled or raises. If this process is killed, each server's guard does
    the same.

    Raises:
        MissingServer: a program is not installed; the error names all that are missing.
        ServerFailed: a server did not come up.
    """
    _require_programs()
    scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="groupflow-"))
    redis = RedisServer(scratch / "redis", scratch=scratch)
    plugins = [HASH_EXCHANGE]  # a configuration may have `rabbitmq.partitions`
    rabbitmq = RabbitmqServer(scratch / "rabbitmq", plugins=plugins, scratch=scratch)
    try:
        try:
            async with asyncio.TaskGroup() as starts:
                starts.create_task(redis.start())
                starts.create_task(rabbitmq.start())
        except BaseExceptionGroup as failures:
            # The first is the cause; it cancelled the other start.
            raise failures.exceptions[0] from None
        yield PrivateServers(redis=redis, rabbitmq=rabbitmq)
    finally:
        try:
            await asyncio.gather(redis.stop(), rabbitmq.stop())
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _require_programs() -> None:
    missing: list[str] = []
    for server in (RedisServer, RabbitmqServer):
        try:
            server.binary()
        except MissingServer as error:
            missing += error.binaries
    if missing:
        raise MissingServer(missing)
