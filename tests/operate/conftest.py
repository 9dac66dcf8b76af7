"""What operators look at: what the path has left in one store, or in several."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from groupflow.servers import RedisServer
from tests.operate.moved import MakeWorld, World
from tests.operate.spread import Spread
from tests.store.conftest import bench

__all__ = ["bench", "make_world", "spread"]

_numbers = itertools.count(1)


@pytest.fixture
async def spread(redis_server: RedisServer) -> AsyncIterator[Spread]:
    """Four partitions on one Redis, each of which is sound when the test is over."""
    async with Spread(redis_server.url, 4) as spread:
        yield spread
        assert spread.judge() == []


@pytest.fixture
async def make_world(redis_server: RedisServer) -> AsyncIterator[MakeWorld]:
    """Makes namespaces of so many partitions, that may be moved to another number."""
    worlds: list[World] = []

    def make(count: int) -> World:
        worlds.append(World(redis_server.url, f"moved{next(_numbers)}", count))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.close()
