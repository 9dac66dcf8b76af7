"""Pools over one partition and over three, behind the API of a page's process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groupflow.servers import RedisServer
from tests.pools.shop import Shop, shop_of


@pytest.fixture(params=[1, 3])
async def shop(redis_server: RedisServer, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    async with shop_of(redis_server, request.param) as shop:
        yield shop
