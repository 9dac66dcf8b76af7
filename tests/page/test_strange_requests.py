"""No request is answered 500: the answer says what can't be used."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_from_bytes

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.page.raw import exchange
from tests.page.world import TOKEN, World

LOOKS = ("groups", "group", "tasks", "task", "dead", "letter", "overview", "access", "events/x")
ACTS = (
    "route", "dead/redrive", "dead/drop", "task/cancel", "task/drop", "task/run-now", "resume",
    "nothing",
)  # fmt: skip
NAMES = ("state", "text", "tenant", "cursor", "limit", "key", "passed", "id", "reason", "type", "x")
FIELDS = ("ids", "by", "group", "body", "type", "headers", "everything")

_OFTEN = b" 0 -1 99999999999999999999 18446744073709551616 1e400 NaN [ % \0 \xff".split(b" ")
_QUERY = st.lists(
    st.tuples(st.sampled_from(NAMES), st.binary(max_size=40) | st.sampled_from(_OFTEN)), max_size=4
)
# What a header's value may have in it; what it may not is for the server's parser to refuse.
_VALUE = st.binary(max_size=30).map(lambda v: bytes(b for b in v if b >= 32 and b != 127))
_ODD = [b"http://[", b"http://[::1", b"//", b"null", b"Bearer", b"Bearer \xe4", b"[", b"]:", b"::1"]
_HEADER = st.sampled_from(b"Origin Sec-Fetch-Site Content-Type Accept Referer Host Cookie".split())
_HEADERS = st.lists(st.tuples(_HEADER, _VALUE | st.sampled_from(_ODD)), max_size=3)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each, max_size=3)
    ),
    max_leaves=6,
)
_FIELDS = st.dictionaries(st.sampled_from(FIELDS), _JSON, max_size=4)


def _ask(world: World, head: str, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
    answer = exchange(world.url, f"{head} HTTP/1.1".encode(), headers, body)
    assert answer.status < 500, answer
    if answer.status >= 400 and answer.body and answer.type != "text/plain; charset=utf-8":
        assert answer.type == "application/problem+json", answer
        assert orjson.loads(answer.body)["status"] == answer.status


@settings(max_examples=150)
@given(path=st.sampled_from(LOOKS), query=_QUERY, headers=_HEADERS)
def test_looks(
    world: World, path: str, query: list[tuple[str, bytes]], headers: list[tuple[bytes, bytes]]
) -> None:
    encoded = "&".join(f"{name}={quote_from_bytes(value)}" for name, value in query)
    _ask(world, f"GET /api/{path}?{encoded}", headers)


@settings(max_examples=150)
@given(path=st.sampled_from(ACTS), body=_FIELDS | _JSON, headers=_HEADERS)
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
    _ask(world, f"POST /api/{path}", sent, content)
