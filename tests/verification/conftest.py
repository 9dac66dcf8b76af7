"""Scenes that verification shares with the tests of a contributor."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from warnings import catch_warnings

import pytest

from groupflow.servers import RedisServer
from tests.endtoend.conftest import make_rig, rig
from tests.operate.conftest import make_world, spread
from tests.running import running
from tests.security.conftest import authority, stranger, tls_rabbitmq, tls_redis

__all__ = [
    "authority", "make_rig", "make_world", "rig", "spread", "stranger", "tls_rabbitmq", "tls_redis",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What broken connections have left open goes here, not in another test."""
    yield
    with catch_warnings(action="ignore"):
        gc.collect()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, which it may stop, and whose memory it may fill."""
    with running(RedisServer(tmp_path / "redis-of-its-own")) as server:
        yield server
