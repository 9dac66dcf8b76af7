"""repartition tells of the tasks that it ends."""

from __future__ import annotations

from typing import Any

from groupflow.operate.repartition import repartitioned
from groupflow.settings.ends import Events
from groupflow.settings.model import Redis, Settings
from groupflow.store.partitions import keys_of
from tests.operate.moved import MakeWorld
from tests.store.story import play


async def test_it_tells_of_what_was_cancelled_as_its_daemon_died(make_world: MakeWorld) -> None:
    world = make_world(1)
    await world.note()
    await play(world.at(1)[0], "take a0 a1 | claim a0 | cancel a0 requested | expire")
    redis = Redis.model_validate({"url": world.url, "namespace": world.name})
    events = Events(exchange="ends", names=("cancelled",))
    await repartitioned(Settings(redis=redis, events=events), 2)
    world.count = 2
    found: list[Any] = [world.raw.lrange(keys("outbox"), 0, -1) for keys in keys_of(world.name, 2)]
    (entry,) = [entry for entries in found for entry in entries]
    assert b'"event":"cancelled"' in entry
    assert b'"id":"a0"' in entry
