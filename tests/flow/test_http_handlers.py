"""Handlers behind a URL, answered by a small real server on loopback."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import httpx
import orjson
import pytest

from groupflow.broker.publisher import Message
from groupflow.building import Handlers
from groupflow.core.app import App
from groupflow.core.outcome import Advance, Dead, Done, Outcome, Retry
from groupflow.flow.batches import LONGEST_ANSWER
from groupflow.flow.handling import Failed, Runner
from groupflow.flow.http_handlers import SHOWN_CHARS, HttpBatchRunner
from groupflow.flow.runners import AllRunners
from groupflow.servers.server import free_ports
from groupflow.settings.model import Settings
from groupflow.settings.rules import HandlerRule
from groupflow.settings.urls import SecretUrl
from tests.deadlines import deadline
from tests.flow.tasks import FACTS, TASK, failure, task, unnamed


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


def response(status: int, body: bytes = b"", **headers: Any) -> bytes:
    """A whole response."""
    lines = [f"HTTP/1.1 {status} As it is", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def as_json(value: Any, status: int = 200, content_type: str = "application/json") -> bytes:
    return response(status, orjson.dumps(value), content_type=content_type)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


@asynccontextmanager
async def running(url: str, **words: Any) -> AsyncIterator[Runner]:
    """The runner of type ``t`` for a URL, built as the daemon builds it."""
    rule = HandlerRule(http=SecretUrl(url), **words)
    with ThreadPoolExecutor(1) as threads:
        runners = AllRunners(App(), {"t": rule}, threads)
        runner = runners.find("t")
        assert runner is not None
        try:
            async with asyncio.timeout(deadline()):
                yield runner
        finally:
            await runners.close()


async def answer(server: Server, raw: bytes) -> Outcome | Failed:
    """The outcome of one task to which the server answers so."""
    server.answer = raw
    async with running(server.url) as runner:
        return await runner.handle(task())


OVER_LONG = Failed("Answer", f"its answer is over {LONGEST_ANSWER} bytes", is_final=True)
LARGE = {"result": "x" * (LONGEST_ANSWER // 2)}
DATE, JSON = "Wed, 21 Oct 2026 07:28:00 GMT", "application/json"
STAGE = {"stage": "two"}
JSON_AS_IT_IS = {"content_type": f"{JSON}; charset=utf-8", "content_encoding": "Identity"}
PACKED = Failed(
    "ContentEncoding",
    "HTTP 200 came with Content-Encoding 'gzip', though identity was asked for: have the handler "
    "answer without it",
    is_final=True,
)


SAID = "its answer can't be used: the stage is no text: None"
NO_STAGE = Failed("ValueError", SAID, is_final=True)
failed = partial(Failed, "HTTPStatus")


OUTCOMES: list[Any] = [
    (response(201, b"made"), Done()),
    (response(204), Done()),
    (response(429, retry_after=7), Retry(7, "HTTP 429")),
    (response(503, b" later \n", retry_after=0), Retry(0, "HTTP 503: later")),
    (response(503), Retry(None, "HTTP 503")),
    (response(503, retry_after=DATE), Retry(None, "HTTP 503")),
    (response(429, retry_after=-5), Retry(None, "HTTP 429")),
    (response(400, b"no such row"), Dead("HTTP 400: no such row")),
    (response(404), Dead("HTTP 404")),
    (response(422, b"\xff"), Dead("HTTP 422: \\xff")),
    (response(400, b"x" * 100_000), Dead("HTTP 400: " + "x" * SHOWN_CHARS)),
    (response(500, b"stack"), failed("HTTP 500: stack")),
    (response(302, location="/elsewhere"), failed("HTTP 302")),
    (as_json({**STAGE, "context": {"a": [1]}}), Advance("two", {"a": [1]})),
    (response(202, b'{"stage": "b"}', **JSON_AS_IT_IS), Advance("b")),
    (response(200, b'{"stage": "b", "context": %d}' % 2**70, **JSON_AS_IT_IS), Advance("b", 2**70)),
    (response(200, gzip.compress(b"{}"), **JSON_AS_IT_IS | {"content_encoding": "gzip"}), PACKED),
    (as_json(STAGE, content_type="text/plain"), Done()),
    (response(200, b'{"stage": ', content_type=JSON), Done()),
    (as_json(STAGE, 500), failed('HTTP 500: {"stage":"two"}')),
    (as_json({"stage": None}), NO_STAGE),
    (as_json(STAGE, content_type="Application/JSON"), Advance("two")),
    (as_json({**STAGE, "context": LARGE}), Advance("two", LARGE)),  # settling looks how large it is
    (as_json({**STAGE, "context": "x" * LONGEST_ANSWER}), OVER_LONG),
    (as_json({"rows": "x" * LONGEST_ANSWER}), Done()),
]


@pytest.mark.parametrize(("raw", "outcome"), OUTCOMES, ids=map(str, range(len(OUTCOMES))))
async def test_statuses_are_outcomes(server: Server, raw: bytes, outcome: Outcome | Failed) -> None:
    assert await answer(server, raw) == outcome


MORE = {"result": [1], "then": [{"body": {}, "type": "t"}]}
RESULTS: list[Any] = [
    (as_json(MORE), Done([1], (Message(b"{}", "t", id=""),))),
    (as_json(LARGE), Done(LARGE["result"])),
    (as_json({"result": "x" * LONGEST_ANSWER}), OVER_LONG),
    (as_json(MORE, content_type="text/plain"), Done()),
    (as_json(STAGE), Advance("two")),
    (as_json(MORE, 500), failed(f"HTTP 500: {orjson.dumps(MORE).decode()}")),
]


@pytest.mark.parametrize(("raw", "outcome"), RESULTS, ids=map(str, range(len(RESULTS))))
async def test_a_result_where_the_table_asks_for_one(
    server: Server, raw: bytes, outcome: Outcome | Failed
) -> None:
    server.answer = raw
    async with running(server.url, result=True) as runner:
        assert unnamed([await runner.handle(task())]) == [outcome]
    if isinstance(outcome, Done):
        assert await answer(server, raw) == Done()


async def test_an_answer_without_an_end_is_cut_off(server: Server) -> None:
    """A server that answers for ever holds neither the worker nor its memory."""

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()

    server.act = act
    async with running(server.url) as runner:
        assert await runner.handle(task()) == Done()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("status", "outcome"), [(200, Done()), (400, Dead("HTTP 400"))])
async def test_a_packed_answer_is_never_unpacked(
    server: Server, status: int, outcome: Outcome, layers: int
) -> None:
    """2,595 bytes of gzip in gzip took 3 GB."""
    packed = bytes(64 * 2**20)
    for _ in range(layers):
        packed = gzip.compress(packed)
    raw = response(status, packed, content_encoding=", ".join(["gzip"] * layers))
    tracemalloc.start()
    try:
        assert await answer(server, raw) == outcome
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LONGEST_ANSWER
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_bodies_are_posted_byte_for_byte_over_one_connection(server: Server) -> None:
    """Connections are kept and shared; one task's cookies are not sent with another's."""
    server.answer = response(200, set_cookie="tenant=42; Path=/")
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


async def test_a_reload_keeps_the_connections(server: Server) -> None:
    """Those of each configuration before would stay open for as long as the daemon lives."""
    server.answer = response(200)
    settings = Settings(handlers={"t": HandlerRule(http=SecretUrl(server.url))})
    handlers = Handlers(App(), "d1")
    for _ in range(3):
        runner = handlers.rules(settings).runners.find("t")
        assert runner is not None
        assert await runner.handle(task()) == Done()
    await handlers.close()
    assert server.connections == 1


async def test_the_facts_of_the_task_are_headers(server: Server) -> None:
    server.answer = response(200)
    strange = "ä:4 2\r\nx-evil: 1%\U0001f600"
    ids = ["t-1", " leading", "trailing ", "\ttab", " "]
    async with running(server.url) as runner:
        for id_ in ids:
            await runner.handle(replace(TASK, id=id_, group=strange, context={"ä": [1]}))
    assert [request.facts["groupflow-id"] for request in server.requests] == ids
    facts = server.requests[0].facts
    assert orjson.loads(facts.pop("groupflow-context")) == {"ä": [1]}
    named = {f"groupflow-{name.replace('_', '-')}": fact for name, fact in FACTS.items()}
    assert facts == named | {"groupflow-group": strange}
    assert "x-evil" not in server.requests[0].headers


async def test_a_refusal_may_be_for_the_whole_group(server: Server) -> None:
    """Where the handler's table says so; a failure of its own is for the task alone."""
    async with running(server.url, scope="group") as runner:
        server.answer = response(429, retry_after=7)
        assert await runner.handle(task()) == Retry(7, "HTTP 429", "group")
        server.answer = response(500)
        assert await runner.handle(task()) == Failed("HTTPStatus", "HTTP 500")


async def test_what_is_secret_in_its_url_is_in_no_reason(server: Server) -> None:
    """Many servers repeat what they were asked, and a reason is shown to all who may look."""
    secret = f"http://127.0.0.1:{server.port}/hooks/T0KEN?code=T0KEN&n=1"
    for status in (404, 429, 500):
        server.answer = response(status, f"{'x' * 485} POST /hooks/T0KEN?code=T0KEN&n=1".encode())
        async with running(secret) as runner:
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
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b"SSH-2.0-OpenSSH_9.6\r\n"]
)
async def test_a_broken_answer_is_a_failed_attempt(server: Server, said: bytes) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.close()
        raise ConnectionError

    server.act = act
    async with running(server.url) as runner:
        outcome = await failure(runner)
    assert not outcome.is_final


async def test_a_cancelled_attempt_drops_its_connection(server: Server) -> None:
    got_it = asyncio.Event()

    async def act(writer: asyncio.StreamWriter) -> None:
        got_it.set()  # and no answer

    server.act = act
    async with running(server.url) as runner:
        attempt = asyncio.create_task(runner.handle(task()))
        await got_it.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await server.gone.wait()
        server.act, server.answer = None, response(200)
        assert await runner.handle(task()) == Done()


async def test_no_proxy_gets_the_tasks(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9/")
    assert await answer(server, response(200)) == Done()


async def test_a_batch_is_posted_in_lines_and_answered_in_lines(server: Server) -> None:
    tasks = [task(body=b'{"n": %d}' % n) for n in range(3)]
    rule = HandlerRule(http=SecretUrl(server.url), batch=10)
    async with httpx.AsyncClient(trust_env=False, timeout=deadline()) as client:
        runner = HttpBatchRunner(rule, server.url, client)
        server.answer = response(200, b'{"outcome": "done"}\n{"outcome": "dead"}\n')
        assert await runner.handle_all(tasks) == [Done(), Dead("its handler says so")]
        server.answer = response(204)
        assert await runner.handle_all(tasks) == [Done()] * 3
        server.answer = as_json({"stage": "b", "context": LARGE})
        assert await runner.handle_all(tasks) == [Advance("b", LARGE)]
        server.answer = as_json({"stage": "b", "context": "x" * LONGEST_ANSWER})
        assert await runner.handle_all(tasks) == [replace(OVER_LONG, is_final=False)]
        server.answer = response(200, b'{"outcome": "done", "result": 1}\n' + b"x" * LONGEST_ANSWER)
        [one, *_, end] = await HttpBatchRunner(
            rule.model_copy(update={"result": True}), server.url, client
        ).handle_all(tasks)
        assert (one, end) == (Done(1), replace(OVER_LONG, is_final=False))
        server.answer = response(429, b'{"outcome": "done"}\n')
        (retry,) = await runner.handle_all(tasks)
        assert isinstance(retry, Retry)
        server.answer = response(200, gzip.compress(b""), content_encoding="gzip")
        (packed,) = await runner.handle_all(tasks)
        assert isinstance(packed, Failed)
    first = server.requests[0]
    lines = [orjson.loads(line) for line in first.body.splitlines()]
    assert [line["body"] for line in lines] == [{"n": n} for n in range(3)]
    assert first.headers["content-type"] == "application/x-ndjson"
    assert first.headers["groupflow-batch"] == "3"
    assert "groupflow-id" not in first.headers
