"""Calls a scan's functions, each within its time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from groupflow.scans.scan import Scan, Shard


async def fetched(scan: Scan, shard: Shard) -> list[Any]:
    """A page of a shard's rows.

    Raises:
        TimeoutError: it took too long; and all that the application raises.
    """
    async with _within(scan.fetch_timeout, "fetch took", "fetch_timeout"):
        return list(await scan.rows(shard))


async def found(scan: Scan, keys: Sequence[Any], shard: Shard) -> list[Any]:
    """The rows of some keys that still want work; errors as of `fetched`."""
    async with _within(scan.fetch_timeout, "find took", "fetch_timeout"):
        return list(await scan.rows_of(keys, shard))


async def worked(scan: Scan, row: Any, shard: Shard) -> None:
    """Do the work of a row; errors as of `fetched`."""
    async with _within(scan.timeout, "the row took", "timeout"):
        await scan.work(row, shard)


@asynccontextmanager
async def _within(seconds: float | None, what: str, setting: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds) as scope:
            yield
    except TimeoutError as error:
        if not scope.expired():  # the application's own
            raise
        raise TimeoutError(f"{what} over {seconds:g} s ({setting})") from error
