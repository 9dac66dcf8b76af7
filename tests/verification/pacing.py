"""How programs wait where no signal tells them to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

LOOK = 0.05  # seconds


async def pause(seconds: float) -> None:
    """Let time pass, as a plan or a rate says: between two faults, two messages, two attacks."""
    await asyncio.sleep(seconds)


async def comes(
    condition: Callable[[], Awaitable[bool]], *, within: float, look: float = LOOK
) -> bool:
    """Whether a condition comes to hold within so many seconds."""
    try:
        async with asyncio.timeout(within):
            while not await condition():
                await asyncio.sleep(look)
    except TimeoutError:
        return False
    return True
