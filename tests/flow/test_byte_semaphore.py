"""How many bytes of large bodies are held at a time."""

from __future__ import annotations

import asyncio

from groupflow.flow.byte_semaphore import ByteSemaphore
from tests.deadlines import deadline


async def hold(room: ByteSemaphore, size: int, held: list[int], go: asyncio.Event) -> None:
    async with room.taken(size):
        held.append(size)
        await go.wait()
    held.remove(size)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_there_is_and_in_turn() -> None:
    room, held = ByteSemaphore(10), list[int]()
    events = [asyncio.Event() for _ in range(4)]
    work = [
        asyncio.create_task(hold(room, size, held, event))
        for size, event in zip((6, 4, 5, 1), events, strict=True)
    ]
    await settled()
    assert held == [6, 4]  # the third waits, and the last one behind it
    events[1].set()
    await settled()
    assert held == [6]
    events[0].set()
    await settled()
    assert held == [5, 1]
    for event in events:
        event.set()
    await asyncio.gather(*work)
    assert held == []


async def test_one_that_is_larger_than_all_there_is_is_held_alone() -> None:
    room, held = ByteSemaphore(10), list[int]()
    first, second = asyncio.Event(), asyncio.Event()
    work = [
        asyncio.create_task(hold(room, 1, held, first)),
        asyncio.create_task(hold(room, 99, held, second)),
    ]
    await settled()
    assert held == [1]
    first.set()
    await settled()
    assert held == [99]
    second.set()
    await asyncio.gather(*work)


async def test_who_gives_up_waiting_leaves_its_room_to_others() -> None:
    room, held, go = ByteSemaphore(10), list[int](), asyncio.Event()
    work = [asyncio.create_task(hold(room, size, held, go)) for size in (10, 9, 1)]
    await settled()
    assert held == [10]
    work[1].cancel()
    await settled()
    go.set()
    await asyncio.gather(*work, return_exceptions=True)
    async with asyncio.timeout(deadline()), room.taken(10):
        pass


async def test_one_that_is_cancelled_as_it_is_given_room_gives_it_back() -> None:
    room, held, go = ByteSemaphore(10), list[int](), asyncio.Event()
    go.set()
    first = asyncio.create_task(hold(room, 10, held, asyncio.Event()))
    second = asyncio.create_task(hold(room, 10, held, go))
    await settled()
    first.cancel()
    await asyncio.sleep(0)  # the room is given to the second one, which has not heard of it
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    async with asyncio.timeout(deadline()), room.taken(10):
        pass
