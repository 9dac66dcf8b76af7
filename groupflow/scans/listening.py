"""Wakes a scan by PostgreSQL's NOTIFY."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import structlog

from groupflow.core.backoff import Backoff
from groupflow.core.errors import GroupflowError
from groupflow.core.masking import mask_secrets

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

log = structlog.get_logger("groupflow.scans")


async def listen(engine: AsyncEngine, channel: str, wake: Callable[[], Awaitable[None]]) -> None:
    """Wake at each notification, for ever; many notifications at once are one wake.

    A new connection begins with a wake: notifications may have come while there was none.
    """
    backoff = Backoff()
    while True:
        try:
            await _listen_once(engine, channel, wake, backoff)
        except GroupflowError as error:
            log.warning("scan.not_woken", channel=channel, error=str(error))
        except Exception as error:  # noqa: BLE001  each driver has its own
            what = mask_secrets(f"{type(error).__name__}: {error}")
            log.warning("scan.not_listening", channel=channel, error=what)
        await asyncio.sleep(backoff.next())


async def _listen_once(
    engine: AsyncEngine, channel: str, wake: Callable[[], Awaitable[None]], backoff: Backoff
) -> None:
    stir = asyncio.Event()
    is_over = False

    def told(*_what: Any) -> None:
        stir.set()

    def ended(*_what: Any) -> None:
        nonlocal is_over
        is_over = True
        stir.set()

    async with engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        driver.add_termination_listener(ended)
        await driver.add_listener(channel, told)
        try:
            log.info("scan.listening", channel=channel)
            stir.set()
            while True:
                await stir.wait()
                stir.clear()
                if is_over:
                    raise ConnectionError("the database closed the connection")
                await wake()
                backoff.reset()
        finally:
            if not is_over:
                driver.remove_termination_listener(ended)
                await driver.remove_listener(channel, told)
