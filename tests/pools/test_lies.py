"""Ten workers that lie: hundreds of faults, and each task is accepted once, its group in order.

They settle twice, with fences of others and of their own past; fall silent; don't hear answers;
want more, then less; and call one process or another as they like.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.pools.conftest import Shop
from tests.pools.shop import Worker, as_, said
from tests.pools.test_claims import expire
from tests.store.test_pools import pooled

WORKERS, FAULTS = 10, 500
LIES = (
    "silence",
    "lost claim",
    "lost settlement",
    "twice",
    "wrong fence",
    "stolen",
    "late",
    "less",
)


class Liars:
    """What the workers believe, and what was accepted."""

    def __init__(self, shop: Shop, seed: int) -> None:
        self.shop = shop
        self.chance = random.Random(seed)
        self.known: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)  # by worker and fence
        self.past: list[tuple[str, dict[str, Any]]] = []
        self.accepted: Counter[str] = Counter()
        self.order: dict[str, list[str]] = defaultdict(list)
        self.told: Counter[str] = Counter()

    def worker(self, name: str) -> Worker:
        """That worker, calling any process."""
        return Worker(self.chance.choice((self.shop.api, self.shop.other)), name)

    async def claim(self, name: str, limit: int, *, is_heard: bool = True) -> None:
        tasks = await self.worker(name).claim(limit)
        for task in tasks:
            holders = [each for each in self.known if task["fence"] in self.known[each]]
            assert holders in ([], [name]), f"{task['id']} was handed out twice"
        if is_heard:
            self.known[name] = {task["fence"]: task for task in tasks}

    async def settle(self, name: str, task: dict[str, Any], *, is_heard: bool = True) -> str:
        [verdict] = await self.worker(name).done(task)
        if is_heard:
            self.known[name].pop(task["fence"], None)
            self.past.append((name, task))
        return verdict

    async def finish(self, name: str, task: dict[str, Any]) -> None:
        """Settle in earnest, and note what that came to."""
        if await self.settle(name, task) == "accepted":
            self.accepted[task["id"]] += 1
            if task["group"]:
                self.order[task["group"]].append(task["id"])

    async def lie(self, name: str) -> None:
        """One fault."""
        lie = self.chance.choice(LIES)
        self.told[lie] += 1
        mine = [*self.known[name].values()]
        task = self.chance.choice(mine) if mine else None
        if lie == "silence":
            expire(self.shop, name)
            self.past += [(name, each) for each in self.known.pop(name, {}).values()]
        elif lie == "lost claim":
            await self.claim(name, self.chance.randint(1, 9), is_heard=False)
        elif lie == "less":
            await self.claim(name, 1)
        elif lie == "late" and self.past:
            whose, old = self.chance.choice(self.past)
            await self.worker(whose).settle(said(old, "retry"))
        elif task is not None and lie == "lost settlement":
            await self.worker(name).done(task)
            await self.finish(name, task)
        elif task is not None and lie == "twice":
            await self.finish(name, task)
            assert await self.worker(name).done(task) == ["accepted"]
        elif task is not None and lie == "wrong fence":
            wrong = {**task, "fence": task["fence"] + self.chance.choice((-1, 1, 999_999))}
            mine_then = {old["fence"] for whose, old in self.past if whose == name}
            if wrong["fence"] not in {*self.known[name], *mine_then}:
                assert await self.worker(name).done(wrong) == ["stale"]
        elif task is not None and lie == "stolen":
            thief = f"w{(int(name[1:]) + 1) % WORKERS}"
            assert await self.worker(thief).done(task) == ["stale"]

    async def work(self, name: str) -> None:
        """What an honest worker does."""
        await self.claim(name, self.chance.randint(1, 9))
        for task in [*self.known[name].values()]:
            if self.chance.random() < 0.7:
                await self.finish(name, task)


@pytest.mark.parametrize("seed", [17])
async def test_no_lie_breaks_a_promise(shop: Shop, seed: int) -> None:
    """500 faults: nothing handed out twice, accepted twice, out of order, or lost."""
    groups = [None, None, "a", "b", "c", "d"]
    ids = [f"t{n:03}" for n in range(400)]
    arrivals = [pooled(id_, groups[n % len(groups)]) for n, id_ in enumerate(ids)]
    liars = Liars(shop, seed)
    while sum(liars.told.values()) < FAULTS:
        if arrivals and liars.chance.random() < 0.3:
            await shop.spread.put(*arrivals[:10])
            arrivals = arrivals[10:]
        name = f"w{liars.chance.randrange(WORKERS)}"
        await liars.work(name) if liars.chance.random() < 0.3 else await liars.lie(name)
    await shop.spread.put(*arrivals)
    for n in range(WORKERS):
        await shop.api.delete(f"/couriers/workers/w{n}")
    liars.known.clear()
    for bench in shop.spread.benches:  # no innocent is to be buried for what liars did
        for key in bench.raw.scan_iter(bench.keys("task_state", "*")):
            bench.raw.hset(key, "due", 0)
    for _ in range(1000):
        before = sum(liars.accepted.values())
        await liars.claim("w0", 50)
        for task in [*liars.known["w0"].values()]:
            await liars.finish("w0", task)
        if sum(liars.accepted.values()) == before:
            break
    dead: list[Any] = []
    for bench in shop.spread.benches:
        found: Any = bench.raw.zrange(bench.keys("dead"), 0, -1)
        dead += found
    done = sum(bench.count("done") for bench in shop.spread.benches)
    assert sorted([*liars.accepted, *(id_.decode() for id_ in dead)]) == ids, liars.told
    assert max(liars.accepted.values()) == 1
    assert done == len(liars.accepted)
    for group, order in liars.order.items():
        assert order == sorted(order), f"{group} is out of order"
    seen = (await shop.api.get("/couriers", headers=as_("a-token-of-the-tests"))).json()
    assert (seen["claimable"] if "claimable" in seen else seen["plain"] + seen["groups"]) == 0
