"""Pools over one partition and over three, behind the API of a page's process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from groupflow.operate.namespace import Namespace
from groupflow.servers import RedisServer
from tests.operate.spread import Spread
from tests.pools.shop import api_of


@dataclass
class Shop:
    """A namespace, and two processes that answer for it."""

    spread: Spread
    api: httpx.AsyncClient
    other: httpx.AsyncClient

    @property
    def namespace(self) -> Namespace:
        return self.spread.namespace


@asynccontextmanager
async def shop_of(redis: RedisServer, partitions: int, **sections: Any) -> AsyncIterator[Shop]:
    """Sound at the end, whatever a test has done."""
    spread = Spread(redis.url, partitions)
    try:
        async with (
            api_of(spread.namespace, **sections) as api,
            api_of(spread.namespace, **sections) as other,
        ):
            yield Shop(spread, api, other)
        assert [wrong for bench in spread.benches for wrong in bench.audit()] == []
    finally:
        await spread.close()


@pytest.fixture(params=[1, 3])
async def shop(redis_server: RedisServer, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    async with shop_of(redis_server, request.param) as shop:
        yield shop
