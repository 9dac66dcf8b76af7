"""One world for all tests of the page: they look, and what they change they put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.page.world import World


@pytest.fixture(scope="session")
def world(
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq_server: RabbitmqServer,
    redis_server: RedisServer,
) -> Iterator[World]:
    """A daemon with something of everything in it."""
    made = World(tmp_path_factory.mktemp("page"), rabbitmq_server, redis_server)
    try:
        yield made
    finally:
        made.close()
