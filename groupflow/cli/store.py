"""How a one-shot verb asks the store: connect, ask, close; no answer is exit 69."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from groupflow.core.errors import reaching

if TYPE_CHECKING:
    from groupflow.store.client import StoreClient

_Answer = TypeVar("_Answer")


def ask_store(config: Path | None, ask: Callable[[StoreClient], Awaitable[_Answer]]) -> _Answer:
    """Load the configuration and ask its Redis one thing.

    Raises:
        ConfigError: the configuration can't be used.
        ServerUnreachable: Redis does not answer, or refused the credentials.
    """
    from groupflow.settings.load import load_settings
    from groupflow.store.client import StoreClient, address_of
    from groupflow.store.keys import Keys

    settings = load_settings(config)
    url = settings.redis_url()
    keys = Keys(settings.redis.namespace)

    async def ask_once() -> _Answer:
        client = StoreClient(url, keys, settings.workers.order, timeout=settings.redis.timeout)
        try:
            return await ask(client)
        finally:
            await client.close()

    with reaching("Redis", address_of(url)):
        return asyncio.run(ask_once())
