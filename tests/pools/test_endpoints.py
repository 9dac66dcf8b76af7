"""Each call of a pool's API by one table, and lists: what is answered, and what changes nothing."""

from __future__ import annotations

from typing import Any, TypeAlias

import orjson
import pytest

from tests.pools.conftest import Shop
from tests.pools.shop import COURIER, LOOKER, OTHER, TOKEN, Worker, as_, lines, said
from tests.store.test_pools import pooled

Row: TypeAlias = tuple[str, str, Any, int, str]  # token, request, body, status, words
ONE = {"limit": 1}
CLAIM, SETTLE = "POST couriers/workers/anna/claims", "POST couriers/workers/anna/settlements"
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
    ("POST nobody/workers/anna/claims", ONE, 404, ""),
    ("GET nobody/workers/anna", None, 404, ""),
    ("DELETE nobody/workers/anna", None, 404, ""),
    ("PUT nobody/tasks", b"", 404, ""),
    ("POST couriers/workers/an na/claims", ONE, 400, ""),
    *((CLAIM, body, 400, "") for body in NO_CLAIMS),
    (CLAIM, {"limit": 1, "wait": 1e9}, 400, "wait"),
    *((SETTLE, body, 400, "") for body in NO_SETTLEMENTS),
    (SETTLE, [{**UNKNOWN, "outcome": "?"}], 400, "outcome"),
    (SETTLE, [{**UNKNOWN, "outcome": "done"}, {**UNKNOWN, "outcome": "done"}], 400, ""),
    (SETTLE, [{**UNKNOWN, "outcome": "advance"}], 400, "stage"),
    (SETTLE, MANY, 413, "The body has over 10000 JSON values."),
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
    ],
)  # fmt: skip
async def test_a_settlement_that_cannot_be_kept_settles_nothing(
    shop: Shop, more: bytes, status: int, words: str
) -> None:
    """Of the whole call: the task that is done beside it neither."""
    await shop.spread.put(pooled("x"), pooled("y"))
    anna = Worker(shop.api)
    x, y = sorted(await anna.claim(2), key=lambda task: str(task["id"]))
    wrong = b'{"id": "x", "fence": %d, "outcome": "advance", %b}' % (x["fence"], more)
    answer = await shop.api.post(
        f"{anna.path}/settlements",
        content=b"[" + orjson.dumps(said(y)) + b", " + wrong + b"]",
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]
    assert answer.json()["detail"]
    assert sorted(await anna.held()) == ["x", "y"]
    assert await anna.settle(said(x, "advance", stage="two"), said(y)) == ["accepted"] * 2


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
    assert sorted((task["id"], task["type"]) for task in tasks) == [
        ("r698", "deliver"),
        ("r699", "deliver"),
    ]
    assert await put({"id": "r699"}, {"id": "r0"}) == {"kept": 1, "assigned": 1, "removed": 697}
    sent = b'{"id": "a", "priority": 99999, "body": {"n": 123456789012345678901234567890}}'
    await shop.api.put("/couriers/tasks", content=sent, headers=as_(TOKEN))
    answer = await shop.api.post("/couriers/workers/dora/claims", json={"limit": 1})
    assert b"123456789012345678901234567890" in answer.content
