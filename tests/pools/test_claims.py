"""What workers that pull are given over HTTP, and what their settlements come to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from groupflow.operate.tasks import find_task
from groupflow.pools import pullers
from groupflow.store.claims import ExchangeReply
from groupflow.store.enqueue import Arrival
from groupflow.store.pulling import Poll, Pulling
from groupflow.store.settlements import Settlement
from tests.pools.conftest import Shop
from tests.pools.shop import LEASE, TOKEN, Worker, as_, ids, said
from tests.store.task_state import pass_time
from tests.store.test_pools import pooled


def body(arrival: Arrival, packed: bytes) -> Arrival:
    arrival.envelope.body = packed
    return arrival


def by_id(task: dict[str, Any]) -> str:
    return str(task["id"])


def expire(
    shop: Shop, worker: str = "anna", pool: str = "couriers", *, left: float | None = None
) -> None:
    """It was silent for its lease, or for all but so many seconds of it."""
    for bench in shop.spread.benches:
        ends = 1 if left is None else bench.server_time() + int(left * 1_000_000)
        bench.raw.zadd(bench.keys("pool_pullers", pool), {f"pool/{pool}/{worker}": ends}, xx=True)


async def test_a_claim_tops_up_and_tells_all(shop: Shop) -> None:
    """A lost answer costs nothing, whoever is asked next; less than held hands the newest back."""
    await shop.spread.put(
        *(pooled(f"p{n}") for n in range(4)), pooled("a0", "a"), pooled("a1", "a")
    )
    anna, elsewhere = Worker(shop.api), Worker(shop.other)
    first = await anna.claim(3)
    assert len(first) == 3
    for told in (await elsewhere.claim(3), (more := await anna.claim(20))[:3]):
        assert sorted(told, key=by_id) == sorted(first, key=by_id)
    assert sorted(ids(more)) == ["a0", "p0", "p1", "p2", "p3"]
    assert ids(await elsewhere.claim(2)) == ids(more)[:2]
    assert sorted(ids(await Worker(shop.api, "carl").claim(20))) == sorted(ids(more)[2:])


async def test_the_oldest_goes_first_wherever_it_lies(shop: Shop) -> None:
    """In the order of arrival, priorities counted, over all partitions."""
    for n in range(6):
        await shop.spread.put(pooled(f"t{n}", "g" if n == 2 else None))
    await shop.spread.put(pooled("urgent", priority=60.0))
    assert set(ids(await Worker(shop.api).claim(4))) == {"urgent", "t0", "t1", "t2"}


async def test_large_bodies_are_settled_a_few_at_a_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis frees each body while the script goes on, and nobody else is answered meanwhile."""
    written, exchange = list[int](), Pulling.exchange

    async def counted(
        store: Pulling, poll: Poll, settlements: Sequence[Settlement]
    ) -> ExchangeReply:
        written.append(len(settlements))
        return await exchange(store, poll, settlements)

    monkeypatch.setattr(Pulling, "exchange", counted)
    monkeypatch.setattr(pullers, "FREED", 150)
    await shop.spread.put(*(body(pooled(f"p{n}"), b"x" * 100) for n in range(10)))
    anna = Worker(shop.api)
    assert set(await anna.done(*await anna.claim(10))) == {"accepted"}
    assert (sum(written), max(written)) == (10, 2)


async def test_a_task_is_told_whole(shop: Shop) -> None:
    """Its body byte for byte where it is JSON, else in base64."""
    exact = b'{"n":123456789012345678901234567890,"a":1,"a":2}'
    await shop.spread.put(
        body(pooled("x", "g", priority=9.0), exact), body(pooled("y"), b"\xff\x00")
    )
    answer = await shop.api.post("/couriers/workers/anna/claims", json={"limit": 5})
    assert b'"body":' + exact in answer.content
    tasks = {task["id"]: task for task in answer.json()["tasks"]}
    assert tasks["x"].pop("fence") > 0
    del tasks["x"]["body"]
    assert tasks["x"] == {
        "id": "x", "type": "t", "group": "g", "tenant": "42", "attempt": 1, "crashes": 0,
        "stage": None, "context": None,
    }  # fmt: skip
    assert (tasks["y"]["body_base64"], "body" in tasks["y"]) == ("/wA=", False)
    assert answer.json()["lease_until"] > 1e9


async def test_outcomes(shop: Shop) -> None:
    """Done, retry, advance, dead: as a handler's, by the policy of the configuration."""
    await shop.spread.put(*(pooled(id_) for id_ in ("ok", "again", "next", "bad", "late")))
    anna = Worker(shop.api)
    tasks = {task["id"]: task for task in await anna.claim(5)}
    told = [
        said(tasks["ok"]),
        said(tasks["again"], "retry", reason="busy"),
        said(tasks["next"], "advance", stage="two", context={"rows": 3}),
        said(tasks["bad"], "dead", reason="no such street"),
        said(tasks["late"], "retry", after=3600),
    ]
    assert await anna.settle(*told) == ["accepted"] * 5
    assert await Worker(shop.other).settle(*told[:4]) == ["accepted"] * 4, "once more, elsewhere"
    [stage] = await anna.claim(5)
    assert (stage["id"], stage["stage"], stage["context"]) == ("next", "two", {"rows": 3})
    for bench in shop.spread.benches:
        await pass_time(bench)
    again = {task["id"]: task for task in await anna.claim(5)}
    assert again.keys() == {"next", "again", "late"}
    assert again["again"]["attempt"] == 2
    assert await anna.settle(said(again["again"], "retry")) == ["accepted"]
    found = [await shop.namespace.seek(partial(find_task, id_=id_)) for id_ in ("again", "bad")]
    stories = [next(iter(each.values())) for each in found]
    assert [story.state for story in stories] == ["dead", "dead"], "its second attempt was its last"
    assert stories[1].reason == "no such street"


async def test_waiting_ends_with_the_first_task(shop: Shop) -> None:
    """Many wait, one gets it; who holds what it knows of waits as well."""
    workers = [Worker(shop.api, f"w{n}") for n in range(5)]
    asked = [asyncio.create_task(worker.claim(5, wait=30)) for worker in workers]
    assert await workers[0].claim(5) == []
    await shop.spread.put(pooled("x"))
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert [ids(each.result()) for each in done] == [["x"]]
    for each in waiting:
        each.cancel()
    [winner] = [worker for worker in workers if await worker.held()]
    assert ids(await winner.claim(5, wait=30)) == ["x"], "it didn't know"
    more = asyncio.create_task(winner.claim(5, wait=30, holding=1))
    await shop.spread.put(pooled("a", "a"))
    assert ids(await more) == ["x", "a"]
    assert await Worker(shop.api, "zoe").claim(5, wait=0.01) == []


async def test_what_waits_and_who_holds(shop: Shop) -> None:
    await shop.spread.put(*(pooled(f"p{n}") for n in range(5)))

    async def seen() -> dict[str, Any]:
        found: dict[str, Any] = (await shop.api.get("/couriers")).json()
        return found

    carl = Worker(shop.api, "carl")
    assert (len(await Worker(shop.api).claim(2)), len(await carl.claim(1))) == (2, 1)
    expire(shop, left=0.4 * LEASE)
    told = await seen()
    assert (told["plain"] + told["groups"], told["held"]) == (2, 3)
    assert (told["known"], told["silent"]) == (2, 1)
    workers = [(each["name"], each["held"], each["is_silent"]) for each in told["workers"]]
    assert workers == [("anna", 2, True), ("carl", 1, False)]
    expire(shop)
    told = await seen()
    assert (told["known"], [each["name"] for each in told["workers"]]) == (1, ["carl"])
    assert (await shop.other.delete(carl.path)).json() == {"returned": 1}
    assert (await carl.held(), (await seen())["workers"]) == ([], [])
    every = (await shop.api.get("http://localhost:9464/api/pools", headers=as_(TOKEN))).json()
    assert [pool["name"] for pool in every] == ["couriers", "others"]


async def test_an_answer_is_bounded_in_bytes(shop: Shop) -> None:
    """A worker pages through what it holds: the oldest first, the others once those are settled."""
    size = 3 * 2**20
    bodies = [b'{"x":"%d%s"}' % (n, b"x" * size) for n in range(8)]
    await shop.spread.put(*(body(pooled(f"p{n}"), each) for n, each in enumerate(bodies)))
    anna, seen = Worker(shop.api), list[str]()
    for _ in range(8):
        answer = await shop.api.post(f"{anna.path}/claims", json={"limit": 8})
        assert len(answer.content) < 9 * 2**20
        told = answer.json()
        again = (await shop.other.post(f"{anna.path}/claims", json={"limit": 8})).json()
        assert ids(again["tasks"]) == ids(told["tasks"])
        assert all(task["body"]["x"][0] == task["id"][1] for task in told["tasks"])
        seen += ids(told["tasks"])
        assert told["more"] == (len(seen) < 8)
        held = (await shop.api.get(anna.path)).json()
        assert (ids(held["tasks"]), held["more"]) == (ids(told["tasks"]), told["more"])
        assert {*await anna.done(*told["tasks"])} == {"accepted"}
        if not told["more"]:
            break
    assert sorted(seen) == [f"p{n}" for n in range(8)]
