"""repartition takes along by when a task has to start."""

from __future__ import annotations

from tests.operate.moved import MakeWorld
from tests.store.story import play


async def test_it_expires_where_it_comes_to(make_world: MakeWorld) -> None:
    world = make_world(1)
    await world.note()
    await play(world.at(1)[0], "take a0? p0? b0 c0?@ q0?")
    await world.move(2)
    for bench in world.at(2):
        assert bench.audit() == []
    world.count = 2
    for id_, group in (("a0", "a"), ("p0", None), ("c0", "c"), ("q0", None)):
        story = f"overdue {id_} | expired 1 | task {id_} expired"
        await play(world.bench_of(group, id_), story)
    assert not [name for name in world.names() if "expiring" in name]
