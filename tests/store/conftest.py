"""A namespace of its own for each test, on Redis and on Valkey; judged when the test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groupflow.servers import RedisServer
from tests.store.bench import Bench
from tests.store.task_state import Order


@pytest.fixture
async def bench(store_server: RedisServer) -> AsyncIterator[Bench]:
    """A store; after each test its structure and its history are sound."""
    async with Bench(store_server.url) as bench:
        yield bench
        assert bench.judge() == []


@pytest.fixture
def order(request: pytest.FixtureRequest) -> Order:
    """Which free group goes first: within a group all orders behave alike."""
    chosen: Order = getattr(request, "param", "oldest")
    return chosen


@pytest.fixture
async def shop(store_server: RedisServer, order: Order) -> AsyncIterator[Bench]:
    """A store; after each test its structure is sound.

    Not its history: who steps aside does so by leaving the order of arrival.
    """
    async with Bench(store_server.url, order=order) as bench:
        yield bench
        assert bench.audit() == []
