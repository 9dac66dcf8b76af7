"""Scenes that verification shares with the tests of a contributor."""

from __future__ import annotations

from tests.endtoend.conftest import make_rig, rig
from tests.operate.conftest import spread
from tests.security.conftest import authority, stranger, tls_rabbitmq, tls_redis

__all__ = ["authority", "make_rig", "rig", "spread", "stranger", "tls_rabbitmq", "tls_redis"]
