"""Each call of a pool's API by one table, and lists: how they come in, and what changes nothing."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import Any, TypeAlias, cast

import httpx
import orjson
import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.core.events import RESULT_BYTES, Following, Told
from groupflow.core.routing import scope_of
from groupflow.pools import filling
from groupflow.pools.lists import IN_MEMORY, SLICE_BYTES, SpooledList
from groupflow.servers import RedisServer
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.pulling import Pulling
from tests.deadlines import deadline
from tests.pools.shop import (
    COURIER,
    LEASE,
    LOOKER,
    OTHER,
    TOKEN,
    Shop,
    Worker,
    api_of,
    as_,
    lines,
    said,
    shop_of,
)
from tests.store.actors import pooled, with_envelope

Row: TypeAlias = tuple[str, str, Any, int, str]  # token, request, body, status, words
ONE = {"limit": 1}
CLAIM, SETTLE = "POST couriers/workers/anna/claims", "POST couriers/workers/anna/settlements"
RENEW = "POST couriers/workers/anna/renewal"
LIST = "PUT couriers/tasks"
UNKNOWN = {"id": "x", "fence": 1}
NO_CLAIMS: list[Any] = [{"limit": 0}, {"limit": 10**6}, {}, [1], b"{"]
NO_SETTLEMENTS: list[Any] = [{}, [], b"no", [UNKNOWN]]
MANY = b"[" + b",".join([b"{}"] * 330_000) + b"]"


def _behind_300(body: bytes) -> bytes:
    """A list whose last line can't be kept."""
    return lines(*({"id": f"g{n}"} for n in range(300))) + b'{"id": "bad", "body": %b}\n' % body


RIGHTS: list[Row] = [
    ("", CLAIM, ONE, 401, ""),
    ("not-a-token-of-anybody", CLAIM, ONE, 401, ""),
    (OTHER, CLAIM, ONE, 403, ""),
    (OTHER, "GET couriers", None, 403, ""),
    (OTHER, LIST, b"", 403, ""),
    (COURIER, LIST, b"", 403, ""),
    (COURIER, "POST others/workers/anna/claims", ONE, 403, ""),
    (LOOKER, CLAIM, ONE, 403, ""),
    (LOOKER, "DELETE couriers/workers/anna", None, 403, ""),
    (LOOKER, "GET couriers/workers/anna", None, 200, ""),
    (LOOKER, "GET couriers", None, 200, ""),
    (TOKEN, "POST others/workers/anna/claims", ONE, 200, ""),
    (TOKEN, "PUT others/tasks", b"", 200, ""),
    (OTHER, "PUT others/tasks", b"", 200, ""),
]
WRONG: list[tuple[str, Any, int, str]] = [
    ("POST unknown/workers/anna/claims", ONE, 404, ""),
    ("GET unknown/workers/anna", None, 404, ""),
    ("DELETE unknown/workers/anna", None, 404, ""),
    ("PUT unknown/tasks", b"", 404, ""),
    ("POST couriers/workers/an na/claims", ONE, 400, ""),
    *((CLAIM, body, 400, "") for body in NO_CLAIMS),
    (CLAIM, {"limit": 1, "wait": 1e9}, 400, "wait"),
    *((SETTLE, body, 400, "") for body in NO_SETTLEMENTS),
    (SETTLE, [{**UNKNOWN, "outcome": "?"}], 400, "outcome"),
    (SETTLE, [{**UNKNOWN, "outcome": "done"}, {**UNKNOWN, "outcome": "done"}], 400, ""),
    (SETTLE, [{**UNKNOWN, "outcome": "advance"}], 400, "stage"),
    (SETTLE, MANY, 413, "The body has over 10000 JSON values."),
    (RENEW, {"progress": [{**UNKNOWN, "done": -1}]}, 400, "done is a number"),
    (RENEW, {"progress": [{**UNKNOWN, "done": 1, "unit": "\n"}]}, 400, "unit has up to"),
    (RENEW, {"progress": [{**UNKNOWN, "done": 1}] * 501}, 400, "500"),
    (RENEW, [], 400, "JSON object"),
    (LIST, b'{"id": "a"}\n{"id": "b"', 400, "line 2"),
    (LIST, b'{"id": "a"}\n[]', 400, "line 2"),
    (LIST, b'{"id": ""}', 400, "no id"),
    (LIST, b'{"id": "a", "priority": "high"}', 400, "priority"),
    (LIST, b'{"id": "a", "priority": 1e300}', 400, "priority"),
    (LIST, b'{"id": "a", "what": 1}', 400, "unknown name"),
    (LIST, b'{"id": "a", "body": 1}', 400, "no JSON object"),
    (LIST, b'{"id": "a", "type": "else"}', 400, "isn't of this pool"),
    (LIST, b'{"id": "a"}\n{"id": "b"}\n{"id": "a"}', 400, "'a' is in the list twice"),
    (LIST, b'{"id": "a", "n": ' + b"[" * 100_000, 400, "not JSON"),
    *((LIST, _behind_300(body), 422, words) for body, words in (
        (b'{"n": ' + b"1" * 4000 + b"}", "infinity"),
        (b'{"n": ' + b"1" * 5000 + b"}", "digits"),
        (b'{"n": 12345678901234567, "s": "\\ud800"}', "half a character, U+D800"),
        (b'{"s": "\\ud800"}', "half a character, U+D800"),
        (b'{"n": 12345678901234567, "m": 1e400}', "1e400"),
        (b'{"m": -1e400}', "-1e400"),
        (b'{"n": [' + b"{}," * 1_000_001 + b"{}]}", "rabbitmq.max_values"))),
]  # fmt: skip


@pytest.mark.parametrize(
    "row", [*RIGHTS, *((TOKEN, *row) for row in WRONG)], ids=lambda row: f"{row[1]} {row[3]}"
)
async def test_an_answer(shop: Shop, row: Row) -> None:
    """Each token does what it is for, in its pools. A refusal is a problem in JSON: no trace."""
    token, (method, path), body, status, words = row[0], row[1].split(" ", 1), *row[2:]
    await shop.spread.put(pooled("x"))
    before = [bench.dump() for bench in shop.spread.benches]
    content = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
    headers = as_(token) | ({"content-type": "application/json"} if method == "POST" else {})
    answer = await shop.api.request(method, f"/{path}", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert words in answer.json()["detail"]
        assert answer.json()["detail"]
        assert [bench.dump() for bench in shop.spread.benches] == before
    if status == 422:
        assert answer.json()["detail"].startswith("Nothing was changed: line 301 ")


DONE = b'"outcome": "done", "then": '  # the last of two names counts
LARGE = b'{"type": "t", "body": "{%600000s}"}' % b""


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        *((b'"stage": "%b"' % stage, 422, "control characters") for stage in (
            b"a\\u0000b", b"a\\nb", b"\\u001b[31m", b"\x7f", "\x85".encode())),
        (b'"stage": "\\ud800"', 400, ""),
        (b'"stage": "s", "context": 1e400', 400, ""),
        (b'"stage": "s", "context": "\\ud800"', 400, ""),
        (b'"stage": "s", "context": ' + b"[" * 2000 + b"]" * 2000, 400, ""),
        (b'"stage": "s", "context": [' + b"{}," * 10_000 + b"{}]", 413, ""),
        (b'"stage": "s", "reason": "\\udfff"', 400, ""),
        *((b'"stage": "s", "after": ' + after, 400, "") for after in (b"NaN", b"1e400", b"-1")),
        (b'"stage": "s", "result": 1', 400, "only a task that is done has a result"),
        (b'"outcome": "dead", "then": [{"body": {}}]', 400, "only a task that is done has"),
        (DONE + b'[{"type": "t", "body": {}}]', 403, 'needs the right "publish"'),
        *((DONE + b'[{"type": "t", "body": {}}, %b]' % wrong, *told) for wrong, *told in (
            (b"7", 400, "then.1"),
            (b'{"type": "t", "body": {}, "id": "mine"}', 400, "then.1.id"),
            (b'{"body": {}}', 422, "of 'x' follow-up task 2: no type"),
            (b'{"body": "[]"}', 422, "follow-up task 2: the body is not a JSON object"),
            (b'{"body": {}, "delay": 1e99}', 422, "follow-up task 2: the delay is"),
            (b'{"body": {}, "headers": {"x-cancel": "a"}}', 422, "is no task: drop it"))),
        (DONE + b'[%b{"body": {}}]' % (b'{"body": {}}, ' * 100), 400, "at most 100 items"),
        (DONE + b"[%b, %b]" % (LARGE, LARGE), 422, "the follow-up tasks have 1200008 bytes"),
    ],
)  # fmt: skip
async def test_nothing_wrong_is_settled(shop: Shop, more: bytes, status: int, words: str) -> None:
    """Of the whole call: the task that is done beside it neither."""
    await shop.spread.put(pooled("x"), pooled("y"))
    anna = Worker(shop.api)
    x, y = sorted(await anna.claim(2), key=lambda task: str(task["id"]))
    wrong = b'{"id": "x", "fence": %d, "outcome": "advance", %b}' % (x["fence"], more)
    sent, as_json = [orjson.dumps(said(y)), wrong], {"content-type": "application/json"}
    told = b"[" + b", ".join(sent) + b"]"
    as_json |= as_(COURIER if status == 403 else TOKEN)
    answer = await shop.api.post(f"{anna.path}/settlements", content=told, headers=as_json)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]
    assert answer.json()["detail"]
    assert sorted(await anna.held()) == ["x", "y"]
    assert await anna.settle(said(x, "advance", stage="two"), said(y)) == ["accepted"] * 2


@pytest.mark.parametrize("events", [{"exchange": "told"}, {"exchange": "told", "names": ["dead"]}])
async def test_what_is_done_is_told(redis_server: RedisServer, events: dict[str, Any]) -> None:
    """Once, with its result and follow-up tasks; without these where all are told or one asks."""
    answered = with_envelope(pooled("asks"), origin={"reply_to": "amq.gen-1", "app": "crm"})
    async with shop_of(redis_server, 3, events=events) as shop:
        await shop.spread.put(pooled("plain"), pooled("more", "g"), pooled("large"), answered)
        await shop.spread.put(pooled("untold"))
        tasks = {task["id"]: task for task in await Worker(shop.api).claim(5)}
        then = [{"body": '{"n": 1.10}', "type": "t", "delay": 2}, {"body": {}, "type": "deliver"}]
        told = [
            said(tasks["plain"]),
            said(tasks["more"], result={"n": 1}, then=then),
            said(tasks["large"], result="x" * RESULT_BYTES),
            said(tasks["untold"], result_error="it is a set"),
            said(tasks["asks"]),
        ]
        for api in (shop.api, shop.other):
            api.headers.update(as_(TOKEN))
            assert await Worker(api).settle(*told) == ["accepted"] * 5
        found = dict[str, Any]()
        for bench in shop.spread.benches:
            for entry in cast(Any, bench.raw.lrange(bench.keys("outbox"), 0, -1)):
                event = Told.of(entry)
                assert found.setdefault(event.facts["id"], event) is event
    given = {"more", "large", "untold", "asks"}
    assert found.keys() == (given | ({"plain"} if len(events) == 1 else set()))
    event = orjson.loads(found["more"].body)
    assert (event["event"], event["group"], event["result"]) == ("done", "g", {"n": 1})
    assert (event["daemon"], event["attempts"]) == ("pool/couriers/anna", 1)
    assert 0 < event["seconds"] < LEASE
    assert found["more"].following == [
        ("more/then/1", Following("t", '{"n": 1.10}', {"x-delay": 2000})),
        ("more/then/2", Following("deliver", "{}", {})),
    ]
    assert f"over {RESULT_BYTES}" in orjson.loads(found["large"].body)["result_error"]
    assert orjson.loads(found["untold"].body)["result_error"] == "it is a set"
    assert found["asks"].reply_to == "amq.gen-1"


async def test_a_pool_is_made_equal_to_a_list(shop: Shop) -> None:
    """Sent again nothing changes; the highest priority goes first; long numbers stay."""

    async def put(*rows: dict[str, Any]) -> dict[str, int]:
        answer = await shop.api.put("/couriers/tasks", content=lines(*rows), headers=as_(TOKEN))
        assert answer.status_code == 200, answer.text
        return {name: number for name, number in answer.json().items() if number}

    rows = [{"id": f"r{n}", "priority": n, "body": {"n": n}} for n in range(700)]
    assert await put(*rows) == {"added": 700}
    assert await put(*rows) == {"kept": 700}
    tasks = await Worker(shop.api).claim(2)
    assert {(task["id"], task["type"]) for task in tasks} == {
        (f"r{n}", "deliver") for n in (698, 699)
    }
    assert await put({"id": "r699"}, {"id": "r0"}) == {"kept": 1, "assigned": 1, "removed": 697}
    sent = b'{"id": "a", "priority": 99999, "body": {"n": 123456789012345678901234567890}}'
    await shop.api.put("/couriers/tasks", content=sent, headers=as_(TOKEN))
    answer = await shop.api.post("/couriers/workers/dora/claims", json={"limit": 1})
    assert b"123456789012345678901234567890" in answer.content


# How a list comes in and is written: in slices, within limits, at a pace, one of each token


TASKS = "/couriers/tasks"


def spooled(*sizes: int) -> SpooledList:
    """A list of bodies of so many bytes, about."""
    found = SpooledList(("t",), 16 * 1024 * 1024, 1_000_000)
    for n, size in enumerate(sizes):
        found.feed(orjson.dumps({"id": f"{n}", "body": {"x": "x" * size}}) + b"\n")
    found.end()
    return found


def test_slices_are_bounded_in_tasks_and_in_bytes() -> None:
    """A line that is larger than a slice goes alone."""
    tenth, large = SLICE_BYTES // 10, 3 * SLICE_BYTES
    found = spooled(*[tenth] * 25, large, large, *[10] * 600)
    slices = [[len(line.body) for line in some] for some in found.read(250)]
    assert [len(some) for some in slices] == [9, 9, 7, 1, 1, 250, 250, 100]
    assert all(len(some) == 1 or sum(some) <= SLICE_BYTES for some in slices)
    found.close()


async def waiting(shop: Shop) -> list[str]:
    """The tasks that wait in the pool."""
    found: set[str] = set()
    for bench in shop.spread.benches:
        keys: Any = bench.raw.hkeys(bench.keys("tasks"))
        found |= {key.decode() for key in keys}
    return sorted(found)


def rows(*names: str) -> bytes:
    return lines(*({"id": name} for name in names))


async def refused(api: httpx.AsyncClient, sent: bytes, words: str) -> None:
    answer = await api.put(TASKS, content=sent, headers=as_(TOKEN))
    assert answer.status_code == 503, answer.text
    assert words in answer.json()["detail"]
    assert int(answer.headers["retry-after"]) > 0


async def test_a_list_stops_below_what_may_wait(shop: Shop) -> None:
    """Nothing goes that waited before; less than what waits is always taken."""
    async with api_of(shop.namespace, redis={"max_waiting": 100}) as api:
        old = [f"old{n}" for n in range(20)]
        await api.put(TASKS, content=rows(*old), headers=as_(TOKEN))
        for _ in range(2):
            await refused(api, rows(*(f"n{n:04}" for n in range(100))), "redis.max_waiting is 100")
        waits = await waiting(shop)
        assert set(old) <= set(waits)
        assert len(waits) <= 90
        less = await api.put(TASKS, content=rows(*old[:5]), headers=as_(TOKEN))
        assert (less.status_code, less.json()["kept"]) == (200, 5)
        assert await waiting(shop) == sorted(old[:5])


async def test_a_list_stops_below_the_memory_that_redis_may_use(shop: Shop) -> None:
    """With more room, the same list is made whole."""
    bench = shop.spread.benches[0]
    await shop.api.put(TASKS, content=rows("old"), headers=as_(TOKEN))
    room = int((bench.used_memory() + 16 * 1024 * 1024) / 0.9)
    sent = lines(*({"id": f"n{n:02}", "body": {"x": "x" * 1024 * 1024}} for n in range(40)))
    async with api_of(shop.namespace, redis={"max_memory": room}) as api:
        await refused(api, sent, f"redis.max_memory is {room}")
    assert "old" in await waiting(shop)
    assert bench.used_memory() < room
    counts = (await shop.api.put(TASKS, content=sent, headers=as_(TOKEN))).json()
    assert (counts["added"] + counts["kept"], counts["removed"]) == (40, 1)


class Held:
    """A body that stops behind its first line until it is let go."""

    def __init__(self, name: str) -> None:
        self.parts = lines({"id": f"{name}0"}), lines({"id": f"{name}1"})
        self.has_begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.parts[0]
        self.has_begun.set()
        await self.goes_on.wait()
        yield self.parts[1]


def put(api: httpx.AsyncClient, sent: Any, token: str, pool: str) -> asyncio.Task[httpx.Response]:
    headers = as_(token)
    if isinstance(sent, Held):
        headers["content-length"] = str(len(b"".join(sent.parts)))
    return asyncio.create_task(api.put(f"/{pool}/tasks", content=sent, headers=headers))


async def test_a_token_has_one_list_under_way(shop: Shop, monkeypatch: Any) -> None:
    """And all of them together have a few."""
    held = Held("a")
    first = put(shop.api, held, TOKEN, "couriers")
    async with asyncio.timeout(deadline()):
        await held.has_begun.wait()
    answers = [await put(shop.api, b"", token, "others") for token in (TOKEN, OTHER)]
    monkeypatch.setattr(filling, "MOST", 1)
    answers.append(await put(shop.api, b"", OTHER, "others"))
    assert [answer.status_code for answer in answers] == [429, 200, 503]
    assert all(int(answers[n].headers["retry-after"]) > 0 for n in (0, 2))
    held.goes_on.set()
    assert (await first).json()["added"] == 2
    assert (await put(shop.api, b"", TOKEN, "others")).status_code == 200


async def test_a_slow_list_is_cut_off(shop: Shop, monkeypatch: Any) -> None:
    """Its token may send another one at once."""
    monkeypatch.setattr(filling, "GRACE", 0.2)
    await shop.api.put(TASKS, content=rows("old"), headers=as_(TOKEN))
    answer = await put(shop.api, Held("a"), TOKEN, "couriers")
    assert answer.status_code == 408, answer.text
    assert "bytes a second" in answer.json()["detail"]
    assert await waiting(shop) == ["old"]
    again = await shop.api.put(TASKS, content=rows("b"), headers=as_(TOKEN))
    assert (again.status_code, again.json()["removed"]) == (200, 1)


async def test_the_longest_id_has_room_for_what_tells_it_apart(shop: Shop) -> None:
    """A stranger has published it before; the task can be settled, and named by operators."""
    longest, scope = "x" * 1024, scope_of(None, "666")
    theirs = Envelope("t", None, "666", None, {}, b'{"tenant_id": 666}', scope)
    await shop.spread.enqueue(Arrival(longest, theirs))
    sent = lines({"id": longest, "body": {"tenant_id": 1}})
    filled = await shop.api.put(TASKS, content=sent, headers=as_(TOKEN))
    assert filled.json()["added"] == 1, filled.text
    anna = Worker(shop.api)
    [task] = await anna.claim()
    assert len(task["id"]) > len(longest)
    assert await anna.done(task) == ["accepted"]


async def test_a_list_without_room_for_its_file(shop: Shop, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    await refused(shop.api, lines({"id": "a", "body": {"x": "x" * 2 * IN_MEMORY}}), "No such file")
    assert await waiting(shop) == []


async def test_a_list_that_ends_as_it_removes_says_so(shop: Shop, monkeypatch: Any) -> None:
    """All of it is taken by then, and some that is in no list may be gone."""

    async def silent(*_: Any) -> Any:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(Pulling, "prune", silent)
    await refused(shop.api, rows("a"), "no answer. The list was taken, and not all that isn't in")
