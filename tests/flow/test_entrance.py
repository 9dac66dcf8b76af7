"""How a batch goes through several entrances: each task by its own, and what went in stays so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from groupflow.core.errors import StoreFull, StoreUnavailable
from groupflow.flow.backpressure import Backpressure
from groupflow.flow.entrance import Entrance, PartitionEntrance
from groupflow.store.enqueue import Arrival, Enqueued, Enqueuer
from groupflow.store.partitions import partition_of
from tests.store.bench import arrival

GATES = 4


class Partition:
    """One that notes what it is given."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.error: Exception | None = None
        self.waiting = self.written = 0
        self.limit = ""
        self.kind = ""
        self.delayed_memory = 100
        self.woken: list[set[str]] = []

    async def enqueue(self, arrivals: Sequence[Arrival], delayed_memory: int) -> Enqueued:
        assert delayed_memory == self.delayed_memory
        if self.error is not None:
            raise self.error
        self.batches.append([each.id for each in arrivals])
        self.waiting += len(arrivals)
        return Enqueued(
            self.waiting,
            [each.id != "known" for each in arrivals],
            {n: "derived" for n, each in enumerate(arrivals) if each.id == "foreign"},
            frozenset(n for n, each in enumerate(arrivals) if each.id == "crowded"),
            superseded=len(arrivals),
            full=frozenset(n for n, each in enumerate(arrivals) if each.id == "full"),
        )

    async def reason(self, queued: int) -> str:
        return f"{self.limit} {queued}" if self.limit else ""

    def wrote(self, size: int) -> None:
        self.written += size

    async def look(self) -> None: ...


class World:
    def __init__(self) -> None:
        self.partitions = [Partition() for _ in range(GATES)]
        self.entrance = Entrance(
            [
                PartitionEntrance(
                    cast(Enqueuer, p), cast(Backpressure, p), cast(Any, p.woken.append)
                )
                for p in self.partitions
            ]
        )


@pytest.fixture
def world() -> World:
    return World()


def _place(group: str | None, id_: str) -> int:
    return partition_of(group, id_, GATES)


ARRIVALS = [
    *(arrival(f"a{n}", "g:1") for n in range(3)),
    *(arrival(f"p{n}") for n in range(5)),
    *(arrival(f"b{n}", f"h:{n}") for n in range(5)),
    arrival("known", "g:1"),
    arrival("foreign"),
    arrival("crowded", "h:1"),
    arrival("full", "h:1"),
]


async def test_each_goes_where_its_group_lies_in_order(world: World) -> None:
    enqueued = await world.entrance.batch(ARRIVALS).write()
    wanted: list[list[str]] = [[] for _ in range(GATES)]
    for each in ARRIVALS:
        wanted[_place(each.envelope.group, each.id)].append(each.id)
    assert all(wanted)  # else the test shows little
    assert [each.batches for each in world.partitions] == [[ids] for ids in wanted]
    assert enqueued.queued == len(ARRIVALS)
    assert [n for n, is_new in enumerate(enqueued.taken) if not is_new] == [13]
    assert enqueued.renamed == {14: "derived"}
    assert enqueued.crowded_out == {15}
    assert enqueued.full == {16}
    assert enqueued.superseded == len(ARRIVALS)
    size = sum(len(each.envelope.body) for each in ARRIVALS)
    assert sum(each.written for each in world.partitions) == size


async def test_what_is_through_is_not_written_again(world: World) -> None:
    """However long another partition is away: the window for duplicates ends some time."""
    away = _place("g:1", "")
    batch = world.entrance.batch(ARRIVALS)
    for error in (StoreUnavailable("away"), StoreUnavailable("away"), StoreFull("full")):
        world.partitions[away].error = error
        with pytest.raises(type(error)):
            await batch.write()
    assert [len(each.batches) for each in world.partitions] == [
        int(n != away) for n in range(GATES)
    ]
    world.partitions[away].error = None
    enqueued = await batch.write()
    assert [len(each.batches) for each in world.partitions] == [1] * GATES
    assert enqueued.taken.count(True) == len(ARRIVALS) - 1


async def test_who_works_there_is_woken_for_what_comes(world: World) -> None:
    plain = next(f"p{n}" for n in range(99) if _place(None, f"p{n}") == 0)
    await world.entrance.batch([arrival(plain)]).write()
    assert [each.woken for each in world.partitions] == [[{"plain"}], [], [], []]


async def test_all_are_asked_what_waits_and_one_limit_is_enough(world: World) -> None:
    for n, partition in enumerate(world.partitions):
        partition.waiting = n
    assert (await world.entrance.batch([]).write()).queued == 6
    assert await world.entrance.reason(7) == ""
    world.partitions[2].limit, world.partitions[2].kind = "memory of two", "memory"
    assert await world.entrance.reason(7) == "memory of two 7"
    assert world.entrance.kind == "memory"
    world.partitions[1].delayed_memory = 50
    assert world.entrance.delayed_memory == 50
