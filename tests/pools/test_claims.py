"""What workers that pull are given over HTTP, and what their settlements come to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from groupflow.core.errors import StoreUnavailable
from groupflow.core.limits import Limits
from groupflow.core.outcome import Retry, Scope
from groupflow.operate.tasks import Tasks
from groupflow.operate.types import read_types
from groupflow.pools import pullers
from groupflow.pools.remote_pool import settlement
from groupflow.servers import RedisServer
from groupflow.store.claims import ExchangeReply
from groupflow.store.enqueue import Arrival
from groupflow.store.pulling import Poll, Pulling
from groupflow.store.settlements import Settlement
from tests.pools.shop import LEASE, TOKEN, Shop, Worker, api_of, as_, expire, ids, said, shop_of
from tests.store.actors import pooled
from tests.store.task_state import found, letter, pass_time


def body(arrival: Arrival, packed: bytes) -> Arrival:
    arrival.envelope.body = packed
    return arrival


async def test_a_claim_tops_up_and_tells_all(shop: Shop) -> None:
    """A lost answer costs nothing at either process; less than held hands the newest back."""
    tasks = [pooled(f"p{n}") for n in range(4)]
    await shop.spread.put(*tasks, pooled("a0", "a"), pooled("a1", "a"))
    anna, elsewhere = Worker(shop.api), Worker(shop.other)
    first = await anna.claim(3)
    assert len(first) == 3
    for told in (await elsewhere.claim(3), (more := await anna.claim(20))[:3]):
        assert sorted(told, key=itemgetter("id")) == sorted(first, key=itemgetter("id"))
    assert sorted(ids(more)) == ["a0", "p0", "p1", "p2", "p3"]
    assert ids(await elsewhere.claim(2)) == ids(more)[:2]
    assert sorted(ids(await Worker(shop.api, "carl").claim(20))) == sorted(ids(more)[2:])


async def test_the_oldest_goes_first_wherever_it_lies(shop: Shop) -> None:
    """In the order of arrival, priorities counted, over all partitions."""
    for n in range(6):
        await shop.spread.put(pooled(f"t{n}", "g" if n == 2 else None))
    await shop.spread.put(pooled("urgent", priority=60.0))
    assert set(ids(await Worker(shop.api).claim(4))) == {"urgent", "t0", "t1", "t2"}


async def test_large_bodies_are_settled_a_few_at_a_time(shop: Shop, monkeypatch: Any) -> None:
    """Redis frees each body while the script goes on, and answers no other call meanwhile."""
    written, exchange = list[int](), Pulling.exchange

    async def counted(
        store: Pulling, poll: Poll, told: Sequence[Settlement], *types: Any
    ) -> ExchangeReply:
        written.append(len(told))
        return await exchange(store, poll, told, *types)

    monkeypatch.setattr(Pulling, "exchange", counted)
    monkeypatch.setattr(pullers, "FREED", 150)
    await shop.spread.put(*(body(pooled(f"p{n}"), b"x" * 100) for n in range(10)))
    anna = Worker(shop.api)
    assert set(await anna.done(*await anna.claim(10))) == {"accepted"}
    assert (sum(written), max(written)) == (10, 2)
    figures = await read_types(shop.namespace, 1)
    assert [(row.type, row.done) for row in figures.types] == [("t", 10)]


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
    anna, deepest = Worker(shop.api), orjson.loads(b"[" * 254 + b"]" * 254)
    tasks = {task["id"]: task for task in await anna.claim(5)}
    told = [
        said(tasks["ok"]),
        said(tasks["again"], "retry", reason="busy"),
        said(tasks["next"], "advance", stage="two", context=deepest),
        said(tasks["bad"], "dead", reason="no such street"),
        said(tasks["late"], "retry", after=3600),
    ]
    assert await anna.settle(*told) == ["accepted"] * 5
    assert await Worker(shop.other).settle(*told[:4]) == ["accepted"] * 4, "once more, elsewhere"
    [stage] = await anna.claim(5)
    assert (stage["id"], stage["stage"], stage["context"]) == ("next", "two", deepest)
    for bench in shop.spread.benches:
        await pass_time(bench)
    again = {task["id"]: task for task in await anna.claim(5)}
    assert again.keys() == {"next", "again", "late"}
    assert again["again"]["attempt"] == 2
    assert await anna.settle(said(again["again"], "retry")) == ["accepted"]
    assert await state_of(shop, "again") == "dead", "its second attempt was its last"
    assert (await found(shop, "bad")).reason == "no such street"


@pytest.mark.parametrize(("scope", "goes_on"), [("task", ["a1"]), ("group", [])])
async def test_a_retry_may_hold_its_whole_group_back(
    shop: Shop, scope: Scope, goes_on: list[str]
) -> None:
    """Where its rule lets others go on before a retry; a worker in Python says so too."""
    rule = {"app": "a", "tenants": "*", "key": "{k}", "name": "rule", "on_retry": "step-aside"}
    await shop.spread.put(pooled("a0", "a"), pooled("a1", "a"))
    async with api_of(shop.namespace, groups=[rule]) as api:
        anna = Worker(api)
        [task] = await anna.claim(1)
        told = settlement((task["fence"], task["id"]), Retry(3600.0, "too many", scope))
        assert await anna.settle(orjson.loads(told)) == ["accepted"]
        assert ids(await anna.claim(5)) == goes_on


async def state_of(shop: Shop, id_: str) -> str:
    return (await found(shop, id_)).state


async def test_a_cancelled_task_is_told_until_it_is_settled(shop: Shop) -> None:
    """Its worker's word stands if that is done or dead; else it ends, and its group goes on."""
    names = ("ok", "bad", "next", "again")
    await shop.spread.put(*(pooled(f"{name}{n}", name) for name in names for n in (0, 1)))
    anna = Worker(shop.api)
    for task in await anna.claim(4):  # its second attempt will be its last
        if task["id"] == "again0":
            assert await anna.settle(said(task, "retry")) == ["accepted"]
    for bench in shop.spread.benches:
        await pass_time(bench)
    tasks = {task["group"]: task for task in await anna.claim(4)}
    assert [tasks[name]["id"] for name in names] == [f"{name}0" for name in names]
    assert [await Tasks(shop.namespace).cancel(f"{name}0", "ops") for name in names] == [
        "requested"
    ] * 4
    asked = sorted((task["id"], task["fence"]) for task in tasks.values())
    for path, wanted in (("renewal", None), ("claims", {"limit": 4}), ("renewal", None)):
        answer = await shop.other.post(f"{anna.path}/{path}", json=wanted)
        cancelled = answer.json()["cancelled"]
        assert sorted((each["id"], each["fence"]) for each in cancelled) == asked
    told = [
        said(tasks["ok"]),
        said(tasks["bad"], "dead", reason="no such street"),
        said(tasks["next"], "advance", stage="two"),
        said(tasks["again"], "retry"),
    ]
    for by in (anna, Worker(shop.other)):
        assert await by.settle(*told) == ["accepted"] * 4
    assert [await state_of(shop, f"{name}0") for name in names] == [
        "done", "dead", "cancelled", "cancelled",
    ]  # fmt: skip
    answer = await shop.api.post(f"{anna.path}/renewal")
    assert (answer.json()["fences"], answer.json()["cancelled"]) == ([], [])
    assert sorted(ids(await anna.claim(4))) == sorted(f"{name}1" for name in names)


async def test_a_renewal_says_how_far_tasks_have_got(shop: Shop) -> None:
    """Of what the worker holds, in whatever partition; of anything else it says nothing."""
    await shop.spread.put(*(pooled(f"p{n}") for n in range(6)))
    anna = Worker(shop.api)
    tasks = sorted(await anna.claim(6), key=lambda task: str(task["id"]))
    told = [
        {"id": task["id"], "fence": task["fence"], "done": n, "total": 8, "unit": "doors"}
        for n, task in enumerate(tasks[:4])
    ]
    told += [{"id": "p4", "fence": 10**9, "done": 1}]
    told += [{"id": "p5x", "fence": tasks[5]["fence"], "done": 1}]
    answer = await shop.other.post(f"{anna.path}/renewal", json={"progress": told})
    assert len(answer.json()["fences"]) == 6
    seen = {
        task["id"]: task["progress"] for task in (await shop.api.get(anna.path)).json()["tasks"]
    }
    for n in range(4):
        progress = (await found(shop, f"p{n}")).progress
        assert progress is not None
        assert seen[f"p{n}"].items() >= {"done": n, "total": 8, "unit": "doors"}.items()
        assert (progress.done, progress.total) == (n, 8)
    assert (seen["p4"], seen["p5"]) == (None, None)


async def test_a_poisonous_task_is_not_given_after_a_lost_answer(
    shop: Shop, monkeypatch: Any
) -> None:
    """It was claimed, and its end wasn't written: the next call has it among what is held."""
    settle, failures = pullers.Pullers._settle, [StoreUnavailable("no answer")]

    async def fails_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await settle(*arguments)

    await shop.spread.put(pooled("p0"))
    assert ids(await Worker(shop.api, "carl").claim(1)) == ["p0"]
    expire(shop, "carl")
    async with api_of(shop.namespace, workers={"max_crashes": 1}) as api:
        anna = Worker(api)
        assert await anna.claim(1) == [], "carl's session is reaped"
        monkeypatch.setattr(pullers.Pullers, "_settle", fails_once)
        lost = await api.post(f"{anna.path}/claims", json={"limit": 1})
        assert (lost.status_code, await anna.claim(1)) == (503, [])
    assert await state_of(shop, "p0") == "dead"


@pytest.mark.parametrize("away", [0, 1])
async def test_who_answers_is_settled_in_while_another_partition_is_away(
    redis_server: RedisServer, away: int
) -> None:
    """Whether what it doesn't find is there, nobody knows until that one is back."""
    async with shop_of(redis_server, 2) as shop:
        for place in (0, 1):
            await shop.spread.put(pooled(f"t{place}", shop.spread.group_in(place)))
        by_id = {task["id"]: task for task in await Worker(shop.api).claim()}
        here, there = by_id[f"t{1 - away}"], by_id[f"t{away}"]
        async with api_of(shop.spread.without(away)) as api:
            anna = Worker(api)
            answer = await api.post(f"{anna.path}/settlements", json=[said(here), said(there)])
            assert answer.status_code == 503
            assert await state_of(shop, here["id"]) == "done"
            assert await anna.done(here) == ["accepted"]
        assert await Worker(shop.api).done(here, there) == ["accepted"] * 2


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


# What they may hand on from stage to stage is bounded


# Of one tenant 1,000 bytes.
REDIS = {"redis": {"carried_memory": 4000, "tenant_share": 0.25}}
CONTEXT = "x" * 600


def whose(id_: str, tenant: str) -> Arrival:
    made = pooled(id_, "g" + id_)
    return replace(made, envelope=replace(made.envelope, tenant=tenant))


def advance(task: dict[str, Any]) -> dict[str, Any]:
    return said(task, "advance", stage="two", context=CONTEXT)


async def test_beyond_a_tenant_s_share_an_advance_is_a_failed_attempt(shop: Shop) -> None:
    """It is tried again by the policy, and dies after the last attempt; others go on."""
    bench = shop.spread.benches[0]
    # They lie where the first partition has room for one of them: each has bounds of its own.
    await bench.enqueue(whose("a", "666"), whose("b", "666"), whose("c", "1"))
    async with api_of(shop.namespace, **REDIS) as api:
        anna = Worker(api)
        first, second, other = sorted(await anna.claim(), key=lambda task: str(task["id"]))
        for _ in range(2):  # said again, it is answered as before
            verdicts = await anna.settle(advance(first), advance(second), advance(other))
            assert verdicts == ["accepted"] * 3
        by_id = {task["id"]: task for task in await anna.claim()}
        assert {id_: task["stage"] for id_, task in by_id.items()} == {"a": "two", "c": "two"}
        assert (bench.count("advanced"), bench.count("retried")) == (2, 1)
        await pass_time(bench)
        [again] = [task for task in await anna.claim() if task["id"] == "b"]
        assert (again["attempt"], again["stage"], again["context"]) == (2, None, None)
        assert await anna.settle(advance(again)) == ["accepted"]
        dead = await letter(bench, "b")
        assert "there is no room for the 602 bytes" in dead.reason
        assert "redis.tenant_share" in dead.reason
        assert [each["daemon"] for each in dead.errors] == ["pool/couriers/anna"] * 2
        assert await anna.done(*by_id.values()) == ["accepted"] * 2
    assert bench.count("carried_bytes") == 0
    bench.events.clear()


async def test_the_log_tells_of_a_drain_as_a_worker_gets_its_task(shop: Shop) -> None:
    for bench in shop.spread.benches:
        bench.limits = Limits(on_drained={"rule": ("couriers", "t")})
        await bench.daemon()
    await shop.spread.put(pooled("a0", "a"))
    anna = Worker(shop.api)
    with capture_logs() as logs:
        await anna.done(*await anna.claim())
        assert await anna.claim() == await anna.claim()
    told = [(e["group"], e["rule"], e["done"]) for e in logs if e["event"] == "group.drained"]
    assert told == [("a", "rule", 1)]
