"""A task's whole life in the store: found in each place, and lived on a full Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupflow.core.errors import StoreFull
from groupflow.operate.dead import DeadLetters
from groupflow.operate.groups import Groups
from groupflow.operate.listing import ListedState, list_tasks
from groupflow.operate.tasks import find_task
from groupflow.servers import RedisServer
from groupflow.store.settlements import Complete, Release
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import (
    HOUR,
    POOLS,
    SETTLEMENTS,
    dead_ids,
    fill,
    found,
    letter,
    promote,
    retry,
)


async def test_a_task_is_found_wherever_it_is(shop: Bench) -> None:
    daemon = await fill(shop, "a0", "a1", "p0", "p1", "b0", "c0", "d0")
    await shop.enqueue(arrival("e0", "e", delay=HOUR), arrival("p2", delay=HOUR))
    claims = {}
    for pool, count in zip(POOLS, (4, 1), strict=True):
        workers = [f"{pool}-{n}" for n in range(count)]
        for claim in await daemon.claim(pool, *workers):
            claims[claim.task.id] = claim
    await daemon.settle(retry(claims["b0"]))
    await daemon.settle(bury(claims["c0"]))
    await daemon.complete(claims["d0"])
    states = {id_: (await found(shop, id_)).state for id_ in ("a0", "a1", "p0", "p1", "b0")}
    assert states == {
        "a0": "running",
        "a1": "queued",
        "p0": "running",
        "p1": "queued",
        "b0": "delayed",
    }
    states = {id_: (await found(shop, id_)).state for id_ in ("c0", "d0", "e0", "p2")}
    assert states == {"c0": "dead", "d0": "done", "e0": "delayed", "p2": "delayed"}
    for id_ in ("a0", "p0"):
        told = await found(shop, id_)
        claim = claims[id_]
        assert (told.daemon, told.worker, told.fence) == ("d1", claim.slot, claim.fence)
        assert told.since is not None
    assert await find_task(shop.client, "never came") is None
    listed: dict[ListedState, set[str]] = {
        "queued": {"a1", "p1"},
        "running": {"a0", "p0"},
        "delayed": {"b0", "e0", "p2"},
        "done": {"d0"},
    }
    for state, expected in listed.items():
        assert {row.id for row in (await list_tasks(shop.namespace, state, 100)).rows} == expected
        assert len((await list_tasks(shop.namespace, state, 1)).rows) == 1


async def test_settles_go_through_when_redis_is_full(tmp_path: Path) -> None:
    """What is there drains, fails, dies and is dropped; only what would add is refused."""
    server = RedisServer(tmp_path / "redis")
    await server.start()
    shop = Bench(server.url)
    try:
        daemon = await fill(shop, *(f"{g}{n}" for g in "abcdefgh" for n in range(2)), "p0", "p1")
        claims = await daemon.claim("grouped", *(f"w{n}" for n in range(8)))
        plain = await daemon.claim_one("plain", "w-plain")
        shop.raw.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            await shop.enqueue(arrival("z0", "z"))
        ways = [*SETTLEMENTS.values(), Complete, Release]
        for claim, way in zip(claims, ways, strict=True):
            assert await daemon.settle(way(claim)) == []
        await daemon.settle(retry(plain))
        await pass_time_when_full(shop)
        await Groups(shop.namespace).pause("a", "ops")
        await Groups(shop.namespace).resume("a")
        dead = await dead_ids(shop)
        with pytest.raises(StoreFull):
            await DeadLetters(shop.namespace).redrive(await letter(shop, dead[0]))
        for id_ in dead:
            assert await DeadLetters(shop.namespace).drop(await letter(shop, id_))
        ran = await daemon.work_off()
        assert len(ran) == 16 + 2 - len(dead) - 1  # one had been completed
        assert shop.audit() == []
    finally:
        await shop.close()
        await server.stop()


async def pass_time_when_full(shop: Bench) -> None:
    """`pass_time` writes by itself, which a full server refuses; so it has its memory meanwhile."""
    shop.raw.config_set("maxmemory", 0)
    delayed: Any = shop.raw.zrange(shop.keys("delayed"), 0, -1)
    held: Any = shop.raw.zrange(shop.keys("held"), 0, -1)
    for entry in delayed:
        shop.raw.zadd(shop.keys("delayed"), {entry: 1})
        shop.raw.hset(shop.keys("task_state", entry[17:].decode()), "due", f"{1:016d}")
    for group in held:
        shop.raw.zadd(shop.keys("held"), {group: 1})
        shop.raw.hset(shop.keys("task_state", shop.lane(group.decode())[0]), "due", f"{1:016d}")
    shop.raw.config_set("maxmemory", 1)
    assert await promote(shop) == len(delayed) + len(held)
