"""A pool with its API, in one process: what the tests of pools call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from groupflow.operate.namespace import Namespace
from groupflow.pools.calls import Pools
from groupflow.servers import RedisServer
from tests.operate.spread import Spread
from tests.page.context import client_of
from tests.page.served import as_

TOKEN, COURIER, OTHER, LOOKER = (
    "a-token-of-the-tests", "a-token-of-couriers", "a-token-of-others", "a-token-to-look-by"
)  # fmt: skip
LEASE = 600.0
SETTINGS: dict[str, Any] = {
    "http": {
        "listen": "127.0.0.1:9464",
        "token": TOKEN,
        "tokens": {
            "couriers": {"token": COURIER, "rights": ["pull"], "pools": ["couriers"]},
            "others": {"token": OTHER, "rights": ["pull", "fill"], "pools": ["others"]},
            "looker": {"token": LOOKER, "rights": ["look"]},
        },
    },
    "pools": {
        "couriers": {"types": ["deliver", "t"], "lease": LEASE},
        "others": {"types": ["else"], "lease": 1.0},
    },
    "retry": {"interval": -60.0, "max_attempts": 2},
}


def api_of(namespace: Namespace, **sections: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """One process that answers, with other sections of the configuration beside, or in place."""
    how: Any = {"base_url": "http://localhost:9464/api/pools", "headers": as_(COURIER)}
    return client_of(namespace, {**SETTINGS, **sections}, Pools, **how)


class Worker:
    """A worker that pulls, in any language: it knows HTTP and JSON."""

    def __init__(self, api: httpx.AsyncClient, name: str = "anna", pool: str = "couriers") -> None:
        self.api = api
        self.path = f"/{pool}/workers/{name}"

    async def claim(self, limit: int = 5, **more: Any) -> list[dict[str, Any]]:
        answer = await self.api.post(f"{self.path}/claims", json={"limit": limit, **more})
        assert answer.status_code == 200, answer.text
        tasks: list[dict[str, Any]] = answer.json()["tasks"]
        return tasks

    async def settle(self, *told: dict[str, Any]) -> list[str]:
        answer = await self.api.post(f"{self.path}/settlements", json=told)
        assert answer.status_code == 200, answer.text
        assert [each["id"] for each in answer.json()] == [each["id"] for each in told]
        return [each["verdict"] for each in answer.json()]

    async def done(self, *tasks: dict[str, Any]) -> list[str]:
        return await self.settle(*(said(task) for task in tasks))

    async def held(self) -> list[str]:
        answer = await self.api.get(self.path)
        assert answer.status_code == 200, answer.text
        return ids(answer.json()["tasks"])


def said(task: dict[str, Any], outcome: str = "done", **more: Any) -> dict[str, Any]:
    """A settlement of a task."""
    return {"id": task["id"], "fence": task["fence"], "outcome": outcome, **more}


def ids(tasks: Iterable[dict[str, Any]]) -> list[str]:
    return [task["id"] for task in tasks]


def lines(*rows: dict[str, Any]) -> bytes:
    """JSON Lines."""
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


@dataclass
class Shop:
    """A namespace, and two processes that answer for it."""

    spread: Spread
    api: httpx.AsyncClient
    other: httpx.AsyncClient

    @property
    def namespace(self) -> Namespace:
        return self.spread.namespace


@asynccontextmanager
async def shop_of(redis: RedisServer, partitions: int, **sections: Any) -> AsyncIterator[Shop]:
    """A namespace that is sound when the test is over."""
    async with Spread(redis.url, partitions) as spread:
        async with (
            api_of(spread.namespace, **sections) as api,
            api_of(spread.namespace, **sections) as other,
        ):
            yield Shop(spread, api, other)
        assert [wrong for bench in spread.benches for wrong in bench.audit()] == []


def expire(shop: Shop, worker: str = "anna", *, left: float | None = None) -> None:
    """It was silent for its lease, or for all but so many seconds of it."""
    for bench in shop.spread.benches:
        ends = 1 if left is None else bench.server_time() + int(left * 1_000_000)
        leases = bench.keys("pool_pullers", "couriers")
        bench.raw.zadd(leases, {f"pool/couriers/{worker}": ends}, xx=True)


__all__ = ["Shop", "Worker", "api_of", "as_", "expire", "ids", "lines", "said"]
