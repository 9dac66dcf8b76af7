"""A store for each test, whose structure is sound when the test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groupflow.servers import RedisServer
from tests.store.bench import Bench


@pytest.fixture
async def bench(redis_server: RedisServer) -> AsyncIterator[Bench]:
    """A namespace of its own."""
    bench = Bench(redis_server.url)
    try:
        yield bench
        assert bench.audit() == []
    finally:
        await bench.close()
