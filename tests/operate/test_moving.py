"""repartition takes along until when tasks wait, and for what; and it tells of those it ends."""

from __future__ import annotations

from typing import Any

from groupflow.operate.repartition import repartitioned
from groupflow.settings.ends import Events
from groupflow.settings.model import Redis, Settings
from tests.operate.moved import MakeWorld, World
from tests.store.story import play


async def moved(make_world: MakeWorld, story: str) -> World:
    """A namespace of two partitions, both sound, from a single one with which a story went on."""
    world = make_world(1)
    await world.note()
    await play(world.at(1)[0], story)
    redis = Redis.model_validate({"url": world.url, "namespace": world.name})
    events = Events(exchange="ends", names=("cancelled",))
    await repartitioned(Settings(redis=redis, events=events), 2)
    world.count = 2
    for bench in world.at(2):
        assert bench.audit() == []
    return world


async def test_it_tells_of_what_was_cancelled_as_its_daemon_died(make_world: MakeWorld) -> None:
    world = await moved(make_world, "take a0 a1 | claim a0 | cancel a0 requested | expire")
    found: list[Any] = [bench.raw.lrange(bench.keys("outbox"), 0, -1) for bench in world.at(2)]
    (entry,) = [entry for entries in found for entry in entries]
    assert b'"event":"cancelled"' in entry
    assert b'"id":"a0"' in entry


async def test_what_expires_does_so_where_it_comes_to(make_world: MakeWorld) -> None:
    world = await moved(make_world, "take a0? p0? b0 c0?@ q0?")
    for id_, group in (("a0", "a"), ("p0", None), ("c0", "c"), ("q0", None)):
        story = f"overdue {id_} | expired 1 | task {id_} expired"
        await play(world.bench_of(group, id_), story)
    assert not [name for name in world.names() if "expiring" in name]


async def test_what_no_daemon_knew_waits_on_until_it_is_due(make_world: MakeWorld) -> None:
    """The clocks stay behind: a daemon that is there by then tells again what it knows."""
    world = await moved(make_world, "take a0 p0 | claim a0 p0 | defer a0 p0 | leave")
    assert not [name for name in world.names() if "unknown" in name]
    for id_, group in (("a0", "a"), ("p0", None)):
        await play(world.bench_of(group, id_), f"waits {id_} 30 | time {id_} | claim {id_}/1")
