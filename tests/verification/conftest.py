"""Scenes that verification shares with the tests of a contributor."""

from __future__ import annotations

from tests.endtoend.conftest import make_rig, rig
from tests.operate.conftest import make_world, spread
from tests.security.conftest import authority, stranger, tls_rabbitmq, tls_redis

__all__ = [
    "authority", "make_rig", "make_world", "rig", "spread", "stranger", "tls_rabbitmq", "tls_redis",
]  # fmt: skip
