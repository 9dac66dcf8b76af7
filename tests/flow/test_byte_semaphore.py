"""How many bytes of large bodies are held at a time."""

from __future__ import annotations

import asyncio

import pytest

from groupflow.flow.byte_semaphore import ByteSemaphore
from tests.deadlines import deadline


class Room:
    """Room for ten bytes, and what is held there until it may go."""

    def __init__(self) -> None:
        self.room = ByteSemaphore(10)
        self.held: list[int] = []
        self.may_go: dict[int, asyncio.Event] = {}
        self.work: dict[int, asyncio.Task[None]] = {}

    async def take(self, *sizes: int) -> None:
        for size in sizes:
            self.may_go[size] = asyncio.Event()
            self.work[size] = asyncio.create_task(self._hold(size))
        await self.turn()

    async def _hold(self, size: int) -> None:
        async with self.room.taken(size):
            self.held.append(size)
            try:
                await self.may_go[size].wait()
            finally:
                self.held.remove(size)

    async def go(self, size: int) -> None:
        self.may_go[size].set()
        await self.turn()

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def is_free(self) -> None:
        """Nobody has taken, or been given, any of it for good."""
        await asyncio.gather(*self.work.values(), return_exceptions=True)
        async with asyncio.timeout(deadline()), self.room.taken(10):
            assert self.held == []


@pytest.fixture
async def room() -> Room:
    return Room()


async def test_no_more_than_there_is_and_in_turn(room: Room) -> None:
    await room.take(6, 4, 5, 1)
    assert room.held == [6, 4]  # the third waits, and the last one behind it
    await room.go(4)
    assert room.held == [6]
    await room.go(6)
    assert room.held == [5, 1]
    await room.go(5)
    await room.go(1)
    await room.is_free()


async def test_one_that_is_larger_than_all_there_is_is_held_alone(room: Room) -> None:
    await room.take(1, 99)
    assert room.held == [1]
    await room.go(1)
    assert room.held == [99]
    await room.go(99)
    await room.is_free()


async def test_one_that_gives_up_waiting_leaves_its_room_to_others(room: Room) -> None:
    await room.take(10, 9, 1)
    room.work[9].cancel()
    await room.turn()
    assert room.held == [10]
    await room.go(10)
    assert room.held == [1]
    await room.go(1)
    await room.is_free()


async def test_one_that_is_cancelled_as_it_is_given_room_gives_it_back(room: Room) -> None:
    await room.take(10, 9)
    room.work[10].cancel()
    await asyncio.sleep(0)  # the room is given to the second one, which has not heard of it
    room.work[9].cancel()
    await room.is_free()
