"""The middleware looks at what a request may cost before it reads the body, for any app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from groupflow.ops.page import middleware
from groupflow.ops.page.access import Authorizer
from groupflow.ops.page.middleware import MOST_VALUES, Middleware
from groupflow.ops.page.problems import problem_response
from groupflow.ops.page.throttle import BODIES
from groupflow.settings.model import Http
from tests.turns import turns

TOKEN = "a-token-of-the-tests-0123456789"
SMALL = b"[" + b"1," * MOST_VALUES + b"1]"
LARGE = b'{"a":[' + b'"a longer text",' * MOST_VALUES + b"1]}"


class App:
    """Answers 200 with the size of the body."""

    read = 0  # bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        self.read += 1
        await problem_response(200, f"{len(message.get('body', b''))}")(scope, receive, send)


async def asked(
    app: Any, content: Any, method: str = "POST", path: str = "/api/x", **headers: str
) -> httpx.Response:
    transport = httpx.ASGITransport(Middleware(app, Authorizer(Http(token=TOKEN))))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(method, path, content=content, headers=headers)


@pytest.mark.parametrize(("body", "status"), [(SMALL, 413), (LARGE, 400)])
async def test_too_many_values(body: bytes, status: int) -> None:
    app = App()
    answer = await asked(app, body)
    assert (answer.status_code, app.read) == (status, 0)
    assert answer.json()["detail"] == f"The body has over {MOST_VALUES} JSON values."


async def test_too_many_bytes() -> None:
    """By their announcement: none of them is read."""

    async def unread() -> AsyncIterator[bytes]:
        raise AssertionError
        yield b""

    answer = await asked(App(), unread(), **{"content-length": f"{BODIES + 1}"})
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


async def test_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "READ", 0.1)

    async def slow() -> AsyncIterator[bytes]:
        yield b"[1,"
        await asyncio.Event().wait()

    answer = await asked(App(), slow(), **{"content-length": "9"})
    assert answer.status_code == 408
    assert answer.json()["detail"] == "3 of 9 bytes came in 0.1 s: send them faster."


async def test_a_body_within_the_limits_comes_whole() -> None:
    body = b"[" + b"1," * (MOST_VALUES - 2) + b"1]"

    async def pieces() -> AsyncIterator[bytes]:
        for n in range(0, len(body), 1000):
            yield body[n : n + 1000]

    answer = await asked(App(), pieces(), **{"content-length": f"{len(body)}"})
    assert (answer.status_code, answer.json()["detail"]) == (200, f"{len(body)}")
    assert "connection" not in answer.headers


async def test_a_stream_goes_on_whatever_body_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that has begun can't become a refusal: no endpoint reads the body of a GET."""
    monkeypatch.setattr(middleware, "READ", 0.0)

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive()).get("more_body"):  # as answers that wait for a disconnect do
            pass
        await send({"type": "http.response.body", "body": b"all"})

    async def slow() -> AsyncIterator[bytes]:
        yield b"[1,"
        await turns(9)
        yield b"2,3]"

    answer = await asked(stream, slow(), "GET", "/api/events", **{"content-length": "7"})
    assert (answer.status_code, answer.text) == (200, "all")


@pytest.mark.parametrize(("path", "is_served"), [("/livez", True), ("/api/x", False)])
async def test_health_waits_for_no_other_caller(
    path: str, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait: here the page lets none in."""
    monkeypatch.setattr("groupflow.ops.page.throttle.LET_IN", 0)
    asking = asyncio.create_task(asked(App(), b"", "GET", path))
    done, _ = await asyncio.wait([asking], timeout=0.2)
    assert bool(done) is is_served
    asking.cancel()
