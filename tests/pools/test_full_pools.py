"""A pool has so many workers, over however many partitions, processes and names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest

from groupflow.servers import RedisServer
from tests.pools.shop import LEASE, SETTINGS, TOKEN, Shop, Worker, as_, expire, ids, shop_of
from tests.servers.replicated import until
from tests.store.actors import pooled

MOST = 3
ZOE = "/couriers/workers/zoe"


@pytest.fixture(params=[1, 3])
async def small(redis_server: RedisServer, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """A pool of few workers."""
    couriers = {**SETTINGS["pools"]["couriers"], "max_workers": MOST}
    pools = {**SETTINGS["pools"], "couriers": couriers}
    async with shop_of(redis_server, request.param, pools=pools) as shop:
        yield shop


async def ask(api: httpx.AsyncClient, name: str, **more: Any) -> httpx.Response:
    return await api.post(f"/couriers/workers/{name}/claims", json={"limit": 1, **more})


async def test_one_too_many_is_told_so(small: Shop) -> None:
    """By a claim and a renewal: which bound, of which pool, and what to do; others go on."""
    await small.spread.put(*(pooled(f"p{n}") for n in range(5)), pooled("x", pool="others"))
    workers = [Worker(small.api, f"w{n}") for n in range(MOST)]
    held = [await worker.claim(1) for worker in workers]
    for refused in (await ask(small.api, "zoe"), await small.other.post(f"{ZOE}/renewal")):
        assert refused.status_code == 429, refused.text
        assert int(refused.headers["retry-after"]) == min(LEASE, 10)
        detail = refused.json()["detail"]
        assert all(each in detail for each in ("'couriers'", "3 workers", "max_workers", "'zoe'"))
    assert (await small.api.get(ZOE)).json() == {"tasks": [], "more": False, "lease_until": None}
    for worker, tasks in zip(workers, held, strict=True):
        assert await worker.done(*tasks) == ["accepted"]
    olga = await small.api.post(
        "/others/workers/olga/claims", json={"limit": 1}, headers=as_(TOKEN)
    )
    assert ids(olga.json()["tasks"]) == ["x"]
    await small.api.delete("/couriers/workers/w1")
    assert (await ask(small.api, "zoe")).status_code == 200
    assert (await ask(small.api, "w1")).status_code == 429


async def test_of_many_that_come_at_once_as_many_as_may_be_get_in(small: Shop) -> None:
    """Each may come to either process first; in all partitions it is the same ones."""
    apis = (small.api, small.other)
    answers = await asyncio.gather(*(ask(apis[n % 2], f"w{n}") for n in range(40)))
    inside = {f"w{n}" for n, answer in enumerate(answers) if answer.status_code == 200}
    assert len(inside) == MOST
    assert {answer.status_code for answer in answers} == {200, 429}
    for bench in small.spread.benches:
        found: Any = bench.raw.zrange(bench.keys("pool_pullers", "couriers"), 0, -1)
        assert {name.decode().rpartition("/")[2] for name in found} == inside


async def test_who_is_refused_takes_from_the_silent(small: Shop) -> None:
    """No daemon runs, and no other worker asks: the next try finds room."""
    for n in range(MOST):
        await Worker(small.api, f"w{n}").claim(1)
    expire(small, "w0")
    assert [(await ask(small.other, "zoe")).status_code for _ in range(2)] == [429, 200]


async def test_who_waited_too_long_for_its_session_keeps_nobody_waiting(small: Shop) -> None:
    """Its lease ran out while it waited, and others came: it hears so, and the next is served."""

    async def has_room() -> bool:
        return (await ask(small.other, "zoe")).status_code == 200

    async def is_known(name: str) -> bool:
        seen = (await small.other.get("/couriers")).json()
        return name in [each["name"] for each in seen["workers"]]

    late = asyncio.create_task(ask(small.api, "late", wait=30))
    await until(partial(is_known, "late"), "it doesn't wait")
    others = [Worker(small.api, f"w{n}") for n in range(MOST - 1)]
    waiting = asyncio.create_task(others[0].claim(1, wait=30))
    await until(partial(is_known, "w0"), "w0 doesn't wait")
    await others[1].claim(1)
    expire(small, "late")
    await until(has_room, "there is no room for zoe")
    assert (await late).status_code == 429
    await small.spread.put(pooled("p0"))
    assert ids(await waiting) == ["p0"]
