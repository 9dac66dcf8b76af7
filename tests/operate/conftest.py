"""What operators look at: what the path has left in one store, or in several."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groupflow.servers import RedisServer
from tests.operate.spread import Spread
from tests.store.conftest import bench

__all__ = ["bench", "spread"]


@pytest.fixture
async def spread(redis_server: RedisServer) -> AsyncIterator[Spread]:
    """Four partitions on one Redis, each of which is sound when the test is over."""
    spread = Spread(redis_server.url, 4)
    try:
        yield spread
        assert spread.judge() == []
    finally:
        await spread.close()
