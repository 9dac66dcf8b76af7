"""The servers that tests share: each started when first asked for, stopped at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from groupflow.servers import RabbitmqServer, RedisServer, ValkeyServer

_Result = TypeVar("_Result")
_Server = TypeVar("_Server", RedisServer, ValkeyServer, RabbitmqServer)


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine to its end on a loop of its own.

    In a thread, since a test's loop may be running in this one (``request.getfixturevalue``).
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


@contextmanager
def _running(server: _Server) -> Iterator[_Server]:
    _run(server.start())
    try:
        yield server
    finally:
        _run(server.stop())


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for all tests. Who stops, kills or pauses a server makes one of its own."""
    with _running(RedisServer(tmp_path_factory.mktemp("redis"))) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One Valkey for all tests."""
    with _running(ValkeyServer(tmp_path_factory.mktemp("valkey"))) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitmqServer]:
    """One RabbitMQ for all tests; some seconds to start, so share it."""
    with _running(RabbitmqServer(tmp_path_factory.mktemp("rabbitmq"))) as server:
        yield server


@pytest.fixture(scope="session", params=["redis", "valkey"])
def store_server(request: pytest.FixtureRequest) -> RedisServer:
    """Redis, then Valkey: what the store promises must hold on both."""
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, RedisServer)
    return server
