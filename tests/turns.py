"""Turns of the event loop: how a test lets what is ready run, while no time needs to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.deadlines import deadline


async def turns(number: int = 1) -> None:
    """Let all tasks that are ready run, so many times."""
    for _ in range(number):
        await asyncio.sleep(0)


async def turns_until(condition: Callable[[], object]) -> None:
    """Let tasks run until a condition holds, for no longer than a deadline."""
    async with asyncio.timeout(deadline()):
        while not condition():
            await asyncio.sleep(0)


class CountedTurns:
    """How many turns the loop has made since; it goes on making them, as long as it runs."""

    number = 0

    def __init__(self) -> None:
        self._turn()

    def _turn(self) -> None:
        self.number += 1
        asyncio.get_running_loop().call_soon(self._turn)
