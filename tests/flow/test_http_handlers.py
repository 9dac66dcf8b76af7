"""Handlers behind a URL, answered by a small real server on loopback."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

import httpx
import orjson
import pytest

from groupflow.core.app import App
from groupflow.core.outcome import Advance, Dead, Done, Outcome, Retry
from groupflow.flow.handling import Failed, Runner
from groupflow.flow.http_handlers import ANSWER_BYTES, SHOWN_CHARS, HttpBatchRunner
from groupflow.flow.runners import AllRunners
from groupflow.servers.server import free_ports
from groupflow.settings.rules import HandlerRule
from groupflow.settings.urls import SecretUrl
from tests.deadlines import deadline
from tests.flow.tasks import TASK, failure, task


class Request(NamedTuple):
    """What the server was sent."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def facts(self) -> dict[str, str]:
        return {n: unquote(v) for n, v in self.headers.items() if n.startswith("groupflow-")}


@dataclass
class Server:
    """Answers each request by the same bytes, or as `act` says, and remembers what it was sent.

    Attributes:
        answer: a whole HTTP response.
        act: what to do with a connection in place of answering.
        requests: all of them.
        connections: how many there were.
        gone: set when a client has dropped its connection.
    """

    answer: bytes = b""
    act: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/import"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                pairs = (line.split(": ", 1) for line in head[1:] if line)
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Request(head[0], headers, body))
                if self.act is not None:
                    await self.act(writer)
                else:
                    writer.write(self.answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()


def response(status: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def as_json(value: Any, status: str = "200 OK", content_type: str = "application/json") -> bytes:
    return response(status, orjson.dumps(value), Content_Type=content_type)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


@asynccontextmanager
async def running(url: str, connections: int = 4, **words: Any) -> AsyncIterator[Runner]:
    """The runner of type ``t`` for a URL, built as the daemon builds it."""
    rule = HandlerRule(http=SecretUrl(url), **words)
    with ThreadPoolExecutor(1) as threads:
        runners = AllRunners(App(), {"t": rule}, threads, connections)
        runner = runners.find("t")
        assert runner is not None
        try:
            yield runner
        finally:
            await runners.close()


NO_STAGE = "its answer can't be used: the stage is no text: "


async def answer(server: Server, raw: bytes) -> Outcome | Failed:
    """The outcome of one task to which the server answers so."""
    server.answer = raw
    async with asyncio.timeout(deadline()), running(server.url) as runner:
        return await runner.handle(task())


@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        (response("200 OK"), Done()),
        (response("201 Created", b"made"), Done()),
        (response("204 No Content"), Done()),
        (response("429 Too Many", Retry_After="7"), Retry(after=7, reason="HTTP 429")),
        (response("503 Busy", b" later \n", Retry_After="0"), Retry(0, "HTTP 503: later")),
        (response("429 Too Many"), Retry(after=None, reason="HTTP 429")),
        (
            response("503 Busy", Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"),
            Retry(after=None, reason="HTTP 503"),
        ),
        (response("429 Too Many", Retry_After="-5"), Retry(after=None, reason="HTTP 429")),
        (response("400 Bad Request", b"no such row"), Dead("HTTP 400: no such row")),
        (response("404 Not Found"), Dead("HTTP 404")),
        (response("410 Gone"), Dead("HTTP 410")),
        (response("422 Unprocessable", b"\xff"), Dead("HTTP 422: \\xff")),
        (response("500 Oops", b"stack"), Failed("HTTPStatus", "HTTP 500: stack")),
        (response("502 Bad Gateway"), Failed("HTTPStatus", "HTTP 502")),
        (response("302 Found", Location="/elsewhere"), Failed("HTTPStatus", "HTTP 302")),
        (as_json({"stage": "two"}), Advance("two", None)),
        (as_json({"stage": "two", "context": {"a": [1]}}), Advance("two", {"a": [1]})),
        (
            as_json({"stage": "two"}, "202 Accepted", "application/json; charset=utf-8"),
            Advance("two", None),
        ),
        (as_json({"rows": 3}), Done()),
        (as_json(["stage"]), Done()),
        (as_json({"stage": "two"}, content_type="text/plain"), Done()),
        (response("200 OK", b'{"stage": ', Content_Type="application/json"), Done()),
        (as_json({"stage": "two"}, "500 Oops"), Failed("HTTPStatus", 'HTTP 500: {"stage":"two"}')),
        *(
            (as_json({"stage": stage}), Failed("ValueError", f"{NO_STAGE}{stage!r}", is_final=True))
            for stage in ("", 7, None)
        ),
        (response("400 Bad Request", b"x" * 100_000), Dead("HTTP 400: " + "x" * SHOWN_CHARS)),
    ],
)
async def test_the_status_is_the_outcome(
    server: Server, raw: bytes, outcome: Outcome | Failed
) -> None:
    assert await answer(server, raw) == outcome


async def test_an_answer_without_an_end_is_cut_off(server: Server) -> None:
    """A server that answers for ever holds neither the worker nor its memory."""

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()

    server.act = act
    async with asyncio.timeout(deadline()), running(server.url) as runner:
        assert await runner.handle(task()) == Done()
    assert ANSWER_BYTES < 2**30


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
async def test_a_packed_answer_is_never_unpacked(server: Server, status: str, layers: int) -> None:
    """2,595 bytes of gzip in gzip took 3 GB."""
    packed = bytes(64 * 2**20)
    for _ in range(layers):
        packed = gzip.compress(packed)
    raw = response(status, packed, Content_Encoding=", ".join(["gzip"] * layers))
    tracemalloc.start()
    try:
        outcome = await answer(server, raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * ANSWER_BYTES
    assert outcome == (Done() if status == "200 OK" else Dead("HTTP 400"))
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_a_packed_answer_that_may_name_a_stage_is_not_taken_for_done(
    server: Server,
) -> None:
    body = orjson.dumps({"stage": "two"})
    words = {"Content_Type": "application/json", "Content_Encoding": "gzip"}
    outcome = await answer(server, response("200 OK", gzip.compress(body), **words))
    assert isinstance(outcome, Failed)
    assert outcome.is_final
    assert "'gzip'" in outcome.message
    words["Content_Encoding"] = "Identity"
    assert await answer(server, response("200 OK", body, **words)) == Advance("two", None)


async def test_bodies_are_posted_byte_for_byte_over_one_connection(server: Server) -> None:
    """Connections are kept and shared; one task's cookies are not sent with another's."""
    server.answer = response("200 OK", Set_Cookie="tenant=42; Path=/")
    bodies = [b'{"name": "Ada"}', b"", b"\x00\xff", b"x" * 3_000_000]
    async with running(server.url) as runner:
        for body in bodies:
            assert await runner.handle(task(body=body)) == Done()
    assert [request.body for request in server.requests] == bodies
    assert server.connections == 1
    for request in server.requests:
        assert request.line == "POST /import HTTP/1.1"
        assert request.headers["content-type"] == "application/json"
        assert "cookie" not in request.headers
        # Facts that a task doesn't have are left out.
        left = {"groupflow-group", "groupflow-stage", "groupflow-context"}
        assert not request.facts.keys() & left


async def test_the_facts_of_the_task_are_headers(server: Server) -> None:
    server.answer = response("200 OK")
    strange = "ä:4 2\r\nx-evil: 1%\U0001f600"
    ids = ["t-1", " leading", "trailing ", "\ttab", " "]
    async with running(server.url) as runner:
        for id_ in ids:
            await runner.handle(replace(TASK, id=id_, group=strange, context={"ä": [1]}))
    assert [request.facts["groupflow-id"] for request in server.requests] == ids
    facts = server.requests[0].facts
    assert orjson.loads(facts.pop("groupflow-context")) == {"ä": [1]}
    assert facts == {
        "groupflow-id": "t-1",
        "groupflow-type": "import.contacts",
        "groupflow-group": strange,
        "groupflow-tenant": "42",
        "groupflow-attempt": "2",
        "groupflow-crashes": "1",
        "groupflow-lost-leases": "0",
        "groupflow-stage": "check",
        "groupflow-fence": "7",
        "groupflow-enqueued-at": "1700000000.5",
    }
    assert "x-evil" not in server.requests[0].headers


async def test_a_refusal_may_be_for_the_whole_group(server: Server) -> None:
    """Where the handler's table says so; a failure of its own is for the task alone."""
    async with asyncio.timeout(deadline()), running(server.url, scope="group") as runner:
        server.answer = response("429 Too Many", Retry_After="7")
        assert await runner.handle(task()) == Retry(7, "HTTP 429", "group")
        server.answer = response("500 Oops")
        assert await runner.handle(task()) == Failed("HTTPStatus", "HTTP 500")


async def test_what_is_secret_in_its_url_is_in_no_reason(server: Server) -> None:
    """Many servers repeat what they were asked, and a reason is shown to all who may look."""
    secret = f"http://127.0.0.1:{server.port}/hooks/T0KEN?code=T0KEN&n=1"
    for status in ("404 Not Found", "429 Too Many", "500 Oh"):
        server.answer = response(status, f"{'x' * 485} POST /hooks/T0KEN?code=T0KEN&n=1".encode())
        async with asyncio.timeout(deadline()), running(secret) as runner:
            outcome = await runner.handle(task())
        said = outcome.message if isinstance(outcome, Failed) else outcome.reason  # type: ignore[union-attr]
        assert said.endswith(" POST ***"), said
    (port,) = free_ports(1)
    async with running(f"http://user:hunter2@127.0.0.1:{port}/hooks/T0KEN") as runner:
        outcome = await failure(runner)
    assert (outcome.error, outcome.is_final) == ("ConnectError", False)
    assert f"127.0.0.1:{port}" in outcome.message
    assert "T0KEN" not in outcome.message
    assert "hunter2" not in outcome.message


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b"SSH-2.0-OpenSSH_9.6\r\n"],
)
async def test_a_broken_answer_is_a_failed_attempt(server: Server, said: bytes) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.close()
        raise ConnectionError

    server.act = act
    async with asyncio.timeout(deadline()), running(server.url) as runner:
        outcome = await failure(runner)
    assert not outcome.is_final


async def test_a_cancelled_attempt_drops_its_connection_and_the_next_has_one(
    server: Server,
) -> None:
    got_it = asyncio.Event()

    async def act(writer: asyncio.StreamWriter) -> None:
        got_it.set()  # and no answer

    server.act = act
    async with asyncio.timeout(deadline()), running(server.url, connections=1) as runner:
        attempt = asyncio.create_task(runner.handle(task()))
        await got_it.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await server.gone.wait()
        server.act, server.answer = None, response("200 OK")
        assert await runner.handle(task()) == Done()


async def test_no_proxy_of_the_environment_gets_the_tasks(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9/")
    assert await answer(server, response("200 OK")) == Done()


async def test_a_batch_is_posted_in_lines_and_answered_in_lines(server: Server) -> None:
    tasks = [task(body=b'{"n": %d}' % n) for n in range(3)]
    rule = HandlerRule(http=SecretUrl(server.url), batch=10)
    async with httpx.AsyncClient(trust_env=False, timeout=deadline()) as client:
        runner = HttpBatchRunner(rule, server.url, client)
        server.answer = response("200 OK", b'{"outcome": "done"}\n{"outcome": "dead"}\n')
        assert await runner.handle_all(tasks) == [Done(), Dead("its handler says so")]
        server.answer = response("204 No Content")
        assert await runner.handle_all(tasks) == [Done()] * 3
        server.answer = response("429 Too Many Requests", b'{"outcome": "done"}\n')
        (retry,) = await runner.handle_all(tasks)
        assert isinstance(retry, Retry)
        server.answer = response("200 OK", gzip.compress(b""), Content_Encoding="gzip")
        (packed,) = await runner.handle_all(tasks)
        assert isinstance(packed, Failed)
    first = server.requests[0]
    assert [orjson.loads(line)["body"] for line in first.body.splitlines()] == [
        {"n": n} for n in range(3)
    ]
    assert first.headers["content-type"] == "application/x-ndjson"
    assert first.headers["groupflow-batch"] == "3"
    assert "groupflow-id" not in first.headers
