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


async def listen(client: StoreClient, on_wake: Callable[[bool], None]) -> None:
    """Listen for ever on the store's wake channel; after an interruption, wake at once.

    The client is of its own, since a subscription keeps its connection. `on_wake` is told whether
    a due time was set, beside that something may be claimed.
    """
    backoff = Backoff()
    while True:
        try:
            async with client.wakes() as wakes:
                async for kind in wakes:
                    backoff.reset()
                    on_wake(kind == b"due")
        except StoreUnavailable as error:
            log.debug("wake.interrupted", error=str(error))
        except GroupflowError as error:
            log.warning("wake.interrupted", error=str(error))
        await asyncio.sleep(backoff.next())
