"""A namespace of its own for each test, on Redis and on Valkey; judged when the test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groupflow.servers import RedisServer
from tests.store.bench import Bench


@pytest.fixture
async def bench(store_server: RedisServer) -> AsyncIterator[Bench]:
    """A store; whatever a test has done to it, its structure and its history are sound."""
    bench = Bench(store_server.url)
    try:
        yield bench
        assert bench.judge() == []
    finally:
        await bench.close()
