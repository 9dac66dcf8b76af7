"""repartition takes tasks along that wait for a daemon to know their type."""

from __future__ import annotations

from tests.operate.moved import MakeWorld
from tests.store.story import play


async def test_they_wait_on_until_they_are_due(make_world: MakeWorld) -> None:
    """The clocks stay behind: a daemon that is there by then tells again what it knows."""
    world = make_world(1)
    await world.note()
    await play(world.at(1)[0], "take a0 p0 | claim a0 p0 | defer a0 p0 | leave")
    await world.move(2)
    for bench in world.at(2):
        assert bench.audit() == []
    assert not [name for name in world.names() if "unknown" in name]
    world.count = 2
    for id_, group in (("a0", "a"), ("p0", None)):
        await play(world.bench_of(group, id_), f"waits {id_} 30 | time {id_} | claim {id_}/1")
