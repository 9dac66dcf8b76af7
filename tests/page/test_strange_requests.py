"""Whatever a request holds, the answer is no 500: what can't be used is said to be so."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_from_bytes, urlsplit

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.deadlines import deadline
from tests.page.raw import Answer, exchange
from tests.page.world import TOKEN, World

PATHS = ("groups", "group", "tasks", "task", "dead", "letter", "overview", "access", "events/x")
POSTS = ("route", "dead/redrive", "dead/drop", "task/drop", "task/run-now", "resume", "nothing")
NAMES = ("state", "text", "tenant", "cursor", "limit", "key", "passed", "id", "reason", "type", "x")

_OFTEN = st.sampled_from(
    [
        b"",
        b"0",
        b"-1",
        b"9" * 20,
        b"18446744073709551616",
        b"1e400",
        b"NaN",
        b"[",
        b"%",
        b"\0",
        b"\xff",
    ]
)
_BYTES = st.one_of(st.binary(max_size=40), _OFTEN)
_QUERY = st.lists(st.tuples(st.sampled_from(NAMES), _BYTES), max_size=4)
# What a header's value may have in it; what it may not is for the server's parser to refuse.
_VALUE = st.one_of(
    st.binary(max_size=30).map(lambda value: bytes(b for b in value if b >= 32 and b != 127)),
    st.sampled_from(
        [
            b"http://[",
            b"http://[::1",
            b"//",
            b"null",
            b"Bearer",
            b"Bearer \xe4",
            b"[",
            b"]:",
            b"::1",
        ]
    ),
)
_HEADER = st.sampled_from(
    [b"Origin", b"Sec-Fetch-Site", b"Content-Type", b"Accept", b"Referer", b"Host", b"Cookie"]
)
_HEADERS = st.lists(st.tuples(_HEADER, _VALUE), max_size=3)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_FIELDS = st.dictionaries(
    st.sampled_from(["ids", "by", "group", "body", "type", "headers", "everything"]),
    _JSON,
    max_size=4,
)
_MANY = settings(max_examples=150)


def _is_fit(answer: Answer) -> None:
    assert answer.status < 500, answer
    if answer.status >= 400 and answer.body and answer.type != "text/plain; charset=utf-8":
        assert answer.type == "application/problem+json", answer
        assert orjson.loads(answer.body)["status"] == answer.status


@_MANY
@given(path=st.sampled_from(PATHS), query=_QUERY, headers=_HEADERS)
def test_looks(
    world: World, path: str, query: list[tuple[str, bytes]], headers: list[tuple[bytes, bytes]]
) -> None:
    encoded = "&".join(f"{name}={quote_from_bytes(value)}" for name, value in query)
    head = f"GET /api/{path}?{encoded} HTTP/1.1".encode()
    _is_fit(exchange(world.url, head, headers))


@_MANY
@given(path=st.sampled_from(POSTS), body=_FIELDS | _JSON, headers=_HEADERS)
def test_acts(world: World, path: str, body: Any, headers: list[tuple[bytes, bytes]]) -> None:
    """With the token, so that what acts is reached; nothing that is named is there."""
    try:
        content = orjson.dumps(body)
    except TypeError:  # an integer that JSON has and this library doesn't
        content = str(body).encode()
    sent = [
        (b"Authorization", f"Bearer {TOKEN}".encode()),
        (b"Content-Type", b"application/json"),
        (b"Content-Length", str(len(content)).encode()),
        *((name, value) for name, value in headers if name != b"Content-Type"),
    ]
    _is_fit(exchange(world.url, f"POST /api/{path} HTTP/1.1".encode(), sent, content))


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//[", "\\", "http://]["])
def test_an_origin_that_is_no_url(world: World, origin: str) -> None:
    answer = world.act("resume", {"group": "nobody's"}, Origin=origin)
    assert answer.status_code == 403


def test_a_query_that_is_no_text(world: World) -> None:
    port = urlsplit(world.url).port
    answer = httpx.get(
        f"http://127.0.0.1:{port}/api/task?id=%ff%00", trust_env=False, timeout=deadline()
    )
    assert answer.status_code == 404
