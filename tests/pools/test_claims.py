"""What workers that pull are given over HTTP, and what their settlements come to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
import pytest

from groupflow.operate.tasks import find_task
from groupflow.pools import pullers
from groupflow.store.claims import ExchangeReply
from groupflow.store.enqueue import Arrival
from groupflow.store.pulling import Poll, Pulling
from groupflow.store.settlements import Settlement
from tests.pools.conftest import Shop
from tests.pools.shop import COURIER, LEASE, LOOKER, OTHER, TOKEN, Worker, as_, ids, lines, said
from tests.store.task_state import pass_time
from tests.store.test_pools import pooled


def body(arrival: Arrival, packed: bytes) -> Arrival:
    arrival.envelope.body = packed
    return arrival


def by_id(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(tasks, key=lambda task: str(task["id"]))


def expire(
    shop: Shop, worker: str = "anna", pool: str = "couriers", *, left: float | None = None
) -> None:
    """It was silent for its lease, or for all but so many seconds of it."""
    for bench in shop.spread.benches:
        ends = 1 if left is None else bench.server_time() + int(left * 1_000_000)
        bench.raw.zadd(bench.keys("pool_pullers", pool), {f"pool/{pool}/{worker}": ends}, xx=True)


async def let_time_pass(shop: Shop) -> None:
    for bench in shop.spread.benches:
        await pass_time(bench)


async def test_a_claim_tops_up_and_tells_all(shop: Shop) -> None:
    """A lost answer costs nothing, whoever is asked next; less than held hands the newest back."""
    await shop.spread.put(
        *(pooled(f"p{n}") for n in range(4)), pooled("a0", "a"), pooled("a1", "a")
    )
    anna, elsewhere = Worker(shop.api), Worker(shop.other)
    first = await anna.claim(3)
    assert len(first) == 3
    assert by_id(await elsewhere.claim(3)) == by_id(first)
    assert sorted(await anna.held()) == sorted(ids(first))
    more = await anna.claim(20)
    assert by_id(more[:3]) == by_id(first)
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
    fence = tasks["x"].pop("fence")
    del tasks["x"]["body"]
    assert tasks["x"] == {
        "id": "x", "type": "t", "group": "g", "tenant": "42", "attempt": 1, "crashes": 0,
        "stage": None, "context": None,
    }  # fmt: skip
    assert fence > 0
    assert tasks["y"]["body_base64"] == "/wA="
    assert "body" not in tasks["y"]
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
    await let_time_pass(shop)
    again = {task["id"]: task for task in await anna.claim(5)}
    assert again.keys() == {"next", "again", "late"}
    assert again["again"]["attempt"] == 2
    assert await anna.settle(said(again["again"], "retry")) == ["accepted"]
    found = [await shop.namespace.seek(partial(find_task, id_=id_)) for id_ in ("again", "bad")]
    stories = [next(iter(each.values())) for each in found]
    assert [story.state for story in stories] == ["dead", "dead"], "its second attempt was its last"
    assert stories[1].reason == "no such street"


async def test_wrong_fences_are_stale_and_change_nothing(shop: Shop) -> None:
    """Another fence, another id, another worker's; an id that there is not."""
    await shop.spread.put(pooled("x"), pooled("y"))
    anna, carl = Worker(shop.api), Worker(shop.api, "carl")
    [x, y] = sorted(await anna.claim(2), key=lambda task: task["id"])
    wrong = [{**x, "fence": x["fence"] + 999}, {**y, "id": "nobody"}]
    assert await anna.done(*wrong) == ["stale", "stale"]
    assert await carl.done(x, y) == ["stale", "stale"]
    assert sorted(await anna.held()) == ["x", "y"]
    assert await anna.done(x, y) == ["accepted", "accepted"]


async def test_a_group_is_serial(shop: Shop) -> None:
    await shop.spread.put(*(pooled(f"a{n}", "a") for n in range(3)))
    anna, carl = Worker(shop.api), Worker(shop.other, "carl")
    for n, (one, two) in enumerate(((anna, carl), (carl, anna), (anna, carl))):
        tasks = await one.claim(5)
        assert ids(tasks) == [f"a{n}"]
        assert await two.claim(5) == []
        assert await one.done(*tasks) == ["accepted"]


async def test_silence_takes_all_away(shop: Shop) -> None:
    """Whoever comes back late is told for each; who wasn't silent keeps what it holds."""
    await shop.spread.put(pooled("x"), pooled("y"))
    anna, carl = Worker(shop.api), Worker(shop.other, "carl")
    tasks = await anna.claim(5)
    renewed = (await shop.other.post(f"{anna.path}/renewal")).json()
    assert renewed["fences"] == sorted(task["fence"] for task in tasks)
    expire(shop)
    assert await anna.done(*tasks) == ["stale", "stale"]
    assert (await shop.api.post(f"{anna.path}/renewal")).json()["fences"] == []
    ran = []
    while given := await carl.claim(5):  # of each partition a quarantined task at a time
        ran += [(task["id"], task["crashes"]) for task in given]
        assert {*await carl.done(*given)} == {"accepted"}
    assert sorted(ran) == [("x", 1), ("y", 1)]


async def test_a_poison_ends_as_a_dead_letter(shop: Shop) -> None:
    """What three workers fell silent with isn't given to a fourth."""
    await shop.spread.put(pooled("poison"))
    for name in ("a", "b", "c"):
        assert ids(await Worker(shop.api, name).claim(5)) == ["poison"]
        expire(shop, name)
        await shop.api.post(f"{Worker(shop.api, name).path}/renewal")
    assert await Worker(shop.api, "d").claim(5) == []
    found = await shop.namespace.seek(lambda client: find_task(client, "poison"))
    assert [each.state for each in found.values()] == ["dead"]


async def test_leaving(shop: Shop) -> None:
    await shop.spread.put(*(pooled(f"p{n}") for n in range(3)))
    anna = Worker(shop.api)
    await anna.claim(3)
    assert (await shop.other.delete(anna.path)).json() == {"returned": 3}
    assert await anna.held() == []
    assert (await shop.api.get("/couriers")).json()["workers"] == []
    given = await Worker(shop.api, "carl").claim(3)
    assert sorted(ids(given)) == ["p0", "p1", "p2"]
    assert not any(task["crashes"] for task in given)


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
    await shop.spread.put(
        *(pooled(f"p{n}") for n in range(4)), pooled("a0", "a"), pooled("a1", "a")
    )
    await Worker(shop.api).claim(2)
    seen = (await shop.api.get("/couriers")).json()
    assert (seen["plain"] + seen["groups"], seen["held"]) == (3, 2)
    [anna] = seen["workers"]
    assert (anna["name"], anna["held"], anna["is_silent"]) == ("anna", 2, False)
    await Worker(shop.api, "carl").claim(1)
    expire(shop, left=0.4 * LEASE)
    seen = (await shop.api.get("/couriers")).json()
    assert (seen["known"], seen["silent"]) == (2, 1)
    assert [each["is_silent"] for each in seen["workers"]] == [True, False]
    expire(shop)
    seen = (await shop.api.get("/couriers")).json()
    assert (seen["known"], [each["name"] for each in seen["workers"]]) == (1, ["carl"])
    every = (await shop.api.get("http://localhost:9464/api/pools", headers=as_(TOKEN))).json()
    assert [pool["name"] for pool in every] == ["couriers", "others"]


BAD: list[tuple[str, str, Any, int]] = [
    ("POST", "/nobody/workers/anna/claims", {"limit": 1}, 404),
    ("POST", "/couriers/workers/anna/claims", {"limit": 0}, 400),
    ("POST", "/couriers/workers/anna/claims", {"limit": 10**6}, 400),
    ("POST", "/couriers/workers/anna/claims", {"limit": 1, "wait": 1e9}, 400),
    ("POST", "/couriers/workers/anna/claims", {}, 400),
    ("POST", "/couriers/workers/anna/claims", [1], 400),
    ("POST", "/couriers/workers/anna/claims", b"{", 400),
    ("POST", "/couriers/workers/an na/claims", {"limit": 1}, 400),
    ("POST", "/couriers/workers/anna/settlements", {}, 400),
    ("POST", "/couriers/workers/anna/settlements", [], 400),
    ("POST", "/couriers/workers/anna/settlements", b"no", 400),
    ("POST", "/couriers/workers/anna/settlements", [{"id": "x", "fence": 1}], 400),
    ("POST", "/couriers/workers/anna/settlements", [{"id": "x", "fence": 1, "outcome": "?"}], 400),
    (
        "POST",
        "/couriers/workers/anna/settlements",
        [{"id": "x", "fence": n, "outcome": "done"} for n in (1, 2)],
        400,
    ),
    (
        "POST",
        "/couriers/workers/anna/settlements",
        [{"id": "x", "fence": 1, "outcome": "advance"}],
        400,
    ),
    ("GET", "/nobody/workers/anna", None, 404),
    ("DELETE", "/nobody/workers/anna", None, 404),
    ("PUT", "/nobody/tasks", b"", 404),
]


async def test_bad_input_changes_nothing(shop: Shop) -> None:
    """Each is a problem in JSON, and leaves no trace."""
    await shop.spread.put(pooled("x"))
    before = [bench.dump() for bench in shop.spread.benches]
    for method, path, sent, status in BAD:
        packed = sent if isinstance(sent, bytes) else b"" if sent is None else orjson.dumps(sent)
        headers = {"content-type": "application/json", **as_(TOKEN)}
        answer = await shop.api.request(method, path, content=packed, headers=headers)
        assert answer.status_code == status, (method, path, sent, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]
    assert [bench.dump() for bench in shop.spread.benches] == before


@pytest.mark.parametrize(
    ("token", "method", "path", "status"),
    [
        ("", "POST", "/couriers/workers/anna/claims", 401),
        ("not-a-token-of-anybody", "POST", "/couriers/workers/anna/claims", 401),
        (OTHER, "POST", "/couriers/workers/anna/claims", 403),
        (OTHER, "GET", "/couriers", 403),
        (OTHER, "PUT", "/couriers/tasks", 403),
        (COURIER, "PUT", "/couriers/tasks", 403),
        (COURIER, "POST", "/others/workers/anna/claims", 403),
        (LOOKER, "POST", "/couriers/workers/anna/claims", 403),
        (LOOKER, "DELETE", "/couriers/workers/anna", 403),
        (LOOKER, "GET", "/couriers/workers/anna", 200),
        (LOOKER, "GET", "/couriers", 200),
        (TOKEN, "POST", "/others/workers/anna/claims", 200),
        (TOKEN, "PUT", "/others/tasks", 200),
        (OTHER, "PUT", "/others/tasks", 200),
    ],
)
async def test_who_may(shop: Shop, token: str, method: str, path: str, status: int) -> None:
    """Each token does what it is for, in its pools, and no more."""
    sent = {"content": b""} if method == "PUT" else {"json": {"limit": 1}}
    kwargs: dict[str, Any] = {} if method in ("GET", "DELETE") else sent
    answer = await shop.api.request(method, path, headers=as_(token), **kwargs)
    assert answer.status_code == status, answer.text


async def put(shop: Shop, *rows: dict[str, Any]) -> dict[str, int]:
    """Make the pool equal to a list; the counts that aren't 0."""
    answer = await shop.api.put("/couriers/tasks", content=lines(*rows), headers=as_(TOKEN))
    assert answer.status_code == 200, answer.text
    counts: dict[str, int] = answer.json()
    return {name: number for name, number in counts.items() if number}


async def test_a_pool_is_made_equal_to_a_list(shop: Shop) -> None:
    """Sent again nothing changes; the highest priority goes first."""
    rows: list[dict[str, Any]] = [
        {"id": f"r{n}", "priority": n, "body": {"n": n}} for n in range(700)
    ]
    assert await put(shop, *rows) == {"added": 700}
    assert await put(shop, *rows) == {"kept": 700}
    anna = Worker(shop.api)
    tasks = await anna.claim(2)
    assert set(ids(tasks)) == {"r699", "r698"}
    assert sorted(task["body"]["n"] for task in tasks) == [698, 699]
    assert {task["type"] for task in tasks} == {"deliver"}
    second: list[dict[str, Any]] = [
        {"id": "r699"},
        {"id": "r0", "priority": 9999},
        {"id": "new", "type": "t"},
    ]
    assert await put(shop, *second) == {"added": 1, "kept": 1, "assigned": 1, "removed": 697}
    assert ids(await Worker(shop.api, "carl").claim(1)) == ["r0"]
    assert set(await anna.held()) == {"r699", "r698"}, "left alone, in the list or not"
    assert await put(shop) == {"removed": 1}


WRONG = [
    (b'{"id": "a"}\n{"id": "b"', "line 2"),
    (b'{"id": "a"}\n[]', "line 2"),
    (b'{"id": ""}', "no id"),
    (b'{"id": "a", "priority": "high"}', "priority"),
    (b'{"id": "a", "priority": 1e300}', "priority"),
    (b'{"id": "a", "what": 1}', "unknown name"),
    (b'{"id": "a", "body": 1}', "no JSON object"),
    (b'{"id": "a", "type": "else"}', "isn't of this pool"),
    (b'{"id": "a"}\n{"id": "b"}\n{"id": "a"}', "'a' is in the list twice"),
    (b'{"id": "a", "n": ' + b"[" * 100_000, "not JSON"),
]


async def test_a_wrong_list_changes_nothing(shop: Shop) -> None:
    """It is said which line it is, or which id comes twice."""
    await put(shop, {"id": "kept"})
    before = [bench.dump() for bench in shop.spread.benches]
    for sent, why in WRONG:
        answer = await shop.api.put("/couriers/tasks", content=sent, headers=as_(TOKEN))
        assert answer.status_code == 400, answer.text
        assert why in answer.json()["detail"]
    assert [bench.dump() for bench in shop.spread.benches] == before


async def test_long_numbers_stay_as_they_are(shop: Shop) -> None:
    sent = b'{"id": "a", "body": {"n": 123456789012345678901234567890}}'
    await shop.api.put("/couriers/tasks", content=sent, headers=as_(TOKEN))
    answer = await shop.api.post("/couriers/workers/anna/claims", json={"limit": 1})
    assert b"123456789012345678901234567890" in answer.content


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


UNFIT = [
    (b'{"n": ' + b"1" * 4000 + b"}", "infinity"),
    (b'{"n": ' + b"1" * 5000 + b"}", "digits"),
    (b'{"n": 12345678901234567, "s": "\\ud800"}', "half a character, U+D800"),
    (b'{"s": "\\ud800"}', "half a character, U+D800"),
    (b'{"n": 12345678901234567, "m": 1e400}', "1e400"),
    (b'{"m": -1e400}', "-1e400"),
    (b'{"n": [' + b"{}," * 1_000_001 + b"{}]}", "rabbitmq.max_values"),
]


@pytest.mark.parametrize(("body", "why"), UNFIT)
async def test_a_list_that_cannot_be_kept_changes_nothing(
    shop: Shop, body: bytes, why: str
) -> None:
    """Nothing of the 300 lines in front of it is made a task either."""
    good = lines(*({"id": f"g{n}"} for n in range(300)))
    before = [bench.dump() for bench in shop.spread.benches]
    sent = good + b'{"id": "bad", "body": ' + body + b"}\n"
    answer = await shop.api.put("/couriers/tasks", content=sent, headers=as_(TOKEN))
    assert answer.status_code == 422, answer.text
    detail = answer.json()["detail"]
    assert detail.startswith("Nothing was changed: line 301 "), detail
    assert why in detail
    assert [bench.dump() for bench in shop.spread.benches] == before


STAGES = ["a\x00b", "a\nb", "\x1b[31m", "\x7f", "\x85"]


@pytest.mark.parametrize("stage", STAGES)
async def test_a_stage_that_no_command_could_be_given_is_refused(shop: Shop, stage: str) -> None:
    """Nothing of the call is settled: the task that is done neither."""
    await shop.spread.put(pooled("x"), pooled("y"))
    anna = Worker(shop.api)
    x, y = by_id(await anna.claim(2))
    told = [said(y), said(x, "advance", stage=stage)]
    answer = await shop.api.post(f"{anna.path}/settlements", json=told)
    assert answer.status_code == 422, answer.text
    assert "control characters" in answer.json()["detail"]
    assert await anna.settle(said(x, "advance", stage="two"), said(y)) == ["accepted"] * 2


SETTLEMENTS = [
    (b'"context": 1e400', 400),
    (b'"context": "\\ud800"', 400),
    (b'"context": ' + b"[" * 2000 + b"]" * 2000, 400),
    (b'"context": [' + b"{}," * 10_000 + b"{}]", 413),
    (b'"reason": "\\udfff"', 400),
    (b'"after": NaN', 400),
    (b'"after": 1e400', 400),
    (b'"after": -1', 400),
    (b'"stage": "\\ud800"', 400),
]


@pytest.mark.parametrize(("more", "status"), SETTLEMENTS)
async def test_a_settlement_that_cannot_be_kept_is_refused(
    shop: Shop, more: bytes, status: int
) -> None:
    await shop.spread.put(pooled("x"))
    anna = Worker(shop.api)
    [task] = await anna.claim(1)
    sent = b'[{"id": "x", "fence": %d, "outcome": "advance", ' % task["fence"] + more
    sent += b"}]" if b"stage" in more else b', "stage": "s"}]'
    headers = {"content-type": "application/json"}
    path = f"{anna.path}/settlements"
    answer = await shop.api.post(path, content=sent, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]
    assert await anna.done(task) == ["accepted"]


async def test_a_call_settles_ten_thousand_values_at_most(shop: Shop) -> None:
    """Each takes far more memory than its bytes, and the server reads no other call meanwhile."""
    sent = b"[" + b",".join([b"{}"] * 330_000) + b"]"
    headers = {"content-type": "application/json"}
    answer = await shop.api.post(
        "/couriers/workers/anna/settlements", content=sent, headers=headers
    )
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The body has over 10000 JSON values."
