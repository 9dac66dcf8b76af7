"""wake: tell the workforce that something may be claimed, as soon as a script says so.

A wake that is lost (Redis restarts, a connection breaks) costs at most the time until the next
renewal of the lease, which tells what could be claimed as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import GroupflowError, StoreUnavailable
from groupflow.store.client import StoreClient

log = structlog.get_logger("groupflow.wake")


class WakeListener:
    """Listens on the store's wake channel, on a connection of its own."""

    def __init__(self, client: StoreClient, on_wake: Callable[[bool], None]) -> None:
        """Binds the listener.

        Args:
            client: of its own, since a subscription keeps its connection.
            on_wake: called with whether a due time was set, beside that something may be claimed.
        """
        self._client = client
        self._on_wake = on_wake

    async def run(self) -> None:
        """Listen for ever; after an interruption, wake at once."""
        backoff = Backoff()
        while True:
            try:
                async with self._client.wakes() as wakes:
                    async for kind in wakes:
                        backoff.reset()
                        self._on_wake(kind == b"due")
            except StoreUnavailable as error:
                log.debug("wake.interrupted", error=str(error))
            except GroupflowError as error:
                log.warning("wake.interrupted", error=str(error))
            await asyncio.sleep(backoff.next())
