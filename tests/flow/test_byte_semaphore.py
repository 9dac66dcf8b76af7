"""How many bytes of large bodies are held at a time."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from groupflow import Task
from groupflow.flow.byte_semaphore import ByteSemaphore
from tests.deadlines import deadline
from tests.flow.crew import crew, named
from tests.store.actors import with_envelope
from tests.store.bench import Bench
from tests.turns import turns


class Room:
    """Room for ten bytes, and what is held there until it may go."""

    def __init__(self) -> None:
        self.room = ByteSemaphore(10)
        self.held: list[int] = []
        self.work: dict[int, asyncio.Task[None]] = {}
        self.may_go: dict[int, asyncio.Event] = defaultdict(asyncio.Event)

    async def _hold(self, size: int) -> None:
        async with self.room.taken(size):
            self.held.append(size)
            try:
                await self.may_go[size].wait()
            finally:
                self.held.remove(size)

    async def do(self, *acts: str) -> list[list[int]]:
        """Take so many bytes, let them go or give up waiting; what is held behind each."""
        held = []
        for verb, size in ((verb, int(number)) for verb, number in map(str.split, acts)):
            if verb == "take":
                self.work[size] = asyncio.create_task(self._hold(size))
            elif verb == "go":
                self.may_go[size].set()
            else:
                self.work[size].cancel()
            await turns(5)
            held.append([*self.held])
        return held

    async def is_free(self) -> None:
        """All of it can be taken again."""
        ends = await asyncio.gather(*self.work.values(), return_exceptions=True)
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
        async with asyncio.timeout(deadline()), self.room.taken(10):
            assert self.held == []


TURNS = [
    # In turn: the third waits, and the last one behind it.
    ([6, 4, 5, 1], ["go 4", "go 6", "go 5", "go 1"], [[6, 4], [6], [5, 1], [1], []]),
    # One that is larger than all there is, is held alone.
    ([1, 99], ["go 1", "go 99"], [[1], [99], []]),
    # One that gives up waiting leaves its room to others.
    ([10, 9, 1], ["cancel 9", "go 10", "go 1"], [[10], [10], [1], []]),
]


@pytest.mark.parametrize(("takes", "others", "held"), TURNS)
async def test_bytes_in_turn(takes: list[int], others: list[str], held: list[list[int]]) -> None:
    room = Room()
    found = await room.do(*(f"take {size}" for size in takes), *others)
    assert found[len(takes) - 1 :] == held
    await room.is_free()


@pytest.mark.parametrize("later", [0, 1])
async def test_one_that_is_cancelled_as_it_is_given_room_gives_it_back(later: int) -> None:
    """Both at once, as at a lease's end; or the second one has room, and has not heard of it."""
    room = Room()
    await room.do("take 10", "take 9")
    room.work[10].cancel()
    await turns(later)
    room.work[9].cancel()
    await room.is_free()


async def test_a_large_body_is_let_go_once_its_attempt_is_over(bench: Bench) -> None:
    """Its room is another's then, though its end is still to be told, and its slot may name it."""
    size = 5_000_000  # more than a script reads

    async def handle(task: Task) -> None:
        assert len(task.body) == size

    await bench.enqueue(with_envelope(named("a"), body=b"x" * size))
    async with crew(bench, handle, pool="plain") as made:
        await made.finish(1)
    [done] = made.claims.accepted
    assert (done.claim.fetched > size, len(done.claim.task.body)) == (True, 0)
