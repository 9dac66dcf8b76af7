"""How faults wait for what others do: until it has come, or for so long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

LOOK = 0.1  # seconds


async def comes(condition: Callable[[], Awaitable[bool]], *, within: float) -> bool:
    """Whether something comes to be so within that many seconds."""
    try:
        async with asyncio.timeout(within):
            while not await condition():
                await asyncio.sleep(LOOK)
    except TimeoutError:
        return False
    return True
