"""A queue of each test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from aio_pika.abc import AbstractConnection

from tests.broker.wires import connected


@pytest.fixture
def queue() -> str:
    return f"queue-{uuid4().hex}"


@pytest.fixture
async def connection(rabbitmq_server: Any) -> AsyncIterator[AbstractConnection]:
    async with connected(rabbitmq_server.url) as connection:
        yield connection
