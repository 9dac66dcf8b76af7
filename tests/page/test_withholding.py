"""A marker in everything that comes from strangers: no GET shows it to who has no token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.endtoend.rig import Job
from tests.page.served import TOKEN, Served, as_

MARKER = "m4rk3r-of-a-tenant"
LARGE = 1_000_000  # bytes of a body
KINDS = {
    "stderr": "ExitCode",
    "parks": "ExitCode",
    "answer": "Dead",
    "raises": "ValueError",
    "door": "rejected",
    "large": "ValueError",
}


class _Echo(BaseHTTPRequestHandler):
    """A handler behind a URL that repeats what it was sent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(422)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """Its URL."""
    server = HTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


SECTIONS = """
[[groups]]
app = "parking"
key = "{{entity}}:{{tenant_id}}"
on_dead = "park"
shares = true
[handlers.stderr]
exec = ["/bin/sh", "-c", "cat >&2; exit 1"]
[handlers.later]
exec = ["/bin/sh", "-c", "cat >&2; exit 1"]
max_attempts = 3
interval = -3600
[handlers.answer]
http = "{echo}"
[pools.posts]
types = ["post"]
"""


class Marked(Served):
    """A daemon's page with markers behind it: all deaths, a parked group, and one that waits."""

    def get(self, path: str, token: str = "", /, **query: Any) -> httpx.Response:
        headers = as_(token) if token else {}
        return self.http.get(f"{path}?{urlencode(query)}", headers=headers)


@pytest.fixture(scope="module")
def marked(
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq_server: RabbitmqServer,
    redis_server: RedisServer,
    echo: str,
) -> Iterator[Marked]:
    folder, fields = tmp_path_factory.mktemp("marked"), {"priority": "urgency"}
    sections = SECTIONS.format(echo=echo)
    made = Marked(folder, rabbitmq_server, redis_server, sections, fields=fields)
    try:
        note, rig = {"note": MARKER}, made.rig
        kinds = ("stderr", None), ("answer", None), ("later", "later"), ("post", "held")
        rig.publish(Job(type_, entity, type=type_, facts=note) for type_, entity in kinds)
        rig.publish(
            [
                Job("raises", None, type="quote", facts=note),
                Job("large", None, type="fail", facts={"note": MARKER + "x" * LARGE}),
                Job("door", None, facts={"urgency": MARKER}),
                Job("parks", "parks", type="stderr", facts={**note, "app_name": "parking"}),
                Job("behind", "later", type="later", facts=note),
            ]
        )
        rig.until(lambda: len(rig.dead()) == len(KINDS), "the deaths")
        rig.until(lambda: rig.raw.zcard(rig.keys("held")) == 1, "the delayed group")
        path, wanted = "/api/pools/posts/workers/anna/claims", {"limit": 5, "wait": 30}
        assert MARKER in made.http.post(path, json=wanted, headers=as_(TOKEN)).text
        yield made
    finally:
        made.close()


_ASKED = {
    "/api/types": [{"hours": "1"}, {"hours": "24"}],
    "/api/tenants": [{}, {"name": "42"}],
}


def _queries(path: str, parameters: set[str]) -> list[dict[str, str]]:
    """What an endpoint is asked, so that it tells of all that there is."""
    if path in ("/api/letter", "/api/task", "/api/body"):
        return [{"id": id_} for id_ in (*KINDS, "later", "behind")]
    if path == "/api/group":
        return [{"key": "parks:42"}, {"key": "later:42"}, {"key": "held:42"}]
    if path == "/api/groups":
        states = ("ready", "running", "delayed", "parked", "paused")
        return [{"state": state} for state in states]
    if path == "/api/tasks":
        return [{"state": state} for state in ("queued", "running", "delayed", "done")]
    if path in _ASKED:
        return _ASKED[path]
    assert parameters <= {"reason", "type", "group", "tenant", "passed", "limit"}, (
        f"{path} asks something that this test does not know"
    )
    return [{}]


_IN_PATHS = {"pool": "posts", "worker": "anna"}


def _looks(marked: Marked) -> list[tuple[str, dict[str, str]]]:
    paths = marked.http.get("/api/openapi.json").json()["paths"]
    found = []
    for path, methods in paths.items():
        if "get" in methods and path != "/api/events":
            named = {each["name"] for each in methods["get"].get("parameters", ())}
            named -= set(_IN_PATHS)
            found += [(path.format(**_IN_PATHS), query) for query in _queries(path, named)]
    return found


def test_nothing_shows_it_without_the_token(marked: Marked) -> None:
    """No look, no event, and no look that finds it by its words: else they could be guessed."""
    looks = _looks(marked)
    assert len(looks) > 20
    for path, query in looks:
        answer = marked.get(path, **query)
        refused = 401 if path.startswith("/api/pools/") else 200
        assert answer.status_code in (200, 404, refused), (path, query)
        assert MARKER not in answer.text, (path, query)
    with marked.http.stream("GET", "/api/events") as stream:
        lines = stream.iter_lines()
        event = [next(lines) for _ in range(5)]
    assert MARKER not in str(event)
    assert any(line.startswith("data: ") for line in event)
    assert marked.get("/api/dead", reason=MARKER).json()["letters"] == []
    found = marked.get("/api/dead", reason="Exit").json()["letters"]
    assert {each["id"] for each in found} == {"stderr", "parks"}


def test_the_token_shows_it(marked: Marked) -> None:
    """Each of the deaths but one has it in its very reason: there was something to be left out."""
    for id_ in set(KINDS) - {"large"}:
        for path in ("/api/letter", "/api/task"):
            assert MARKER in marked.get(path, TOKEN, id=id_).json()["reason"], (path, id_)
    for key in ("parks:42", "later:42"):
        assert MARKER in marked.get("/api/group", TOKEN, key=key).json()["why"]["reason"]
    letters = marked.get("/api/dead", TOKEN, reason=MARKER).json()["letters"]
    assert len(letters) == len(KINDS) - 1
    assert not any("errors" in letter for letter in letters), "a list has none for anybody"
    letter = marked.get("/api/letter", TOKEN, id="raises").json()
    assert not letter["is_withheld"]
    assert MARKER in letter["body"]
    assert MARKER in letter["errors"][0]["message"]


def test_what_is_shown_without_the_token(marked: Marked) -> None:
    """The kind of a reason, and how large a body is; of the rest that there is something."""
    letters = marked.get("/api/dead").json()["letters"]
    assert {each["id"]: each["reason"] for each in letters} == KINDS
    for id_, kind in KINDS.items():
        assert marked.get("/api/letter", id=id_).json()["reason"] == kind
        assert marked.get("/api/task", id=id_).json()["reason"] == kind
    assert "ExitCode" in marked.get("/api/group", key="later:42").json()["why"]["reason"]
    letter = marked.get("/api/letter", id="raises").json()
    assert letter["is_withheld"]
    assert (letter["body"], letter["body_base64"], letter["headers"]) == (None, None, {})
    assert letter["body_bytes"] > 0
    assert {error["message"] for error in letter["errors"]} == {"(shown with the token)"}
    assert "(shown with the token)" in marked.get("/api/task", id="raises").text
    assert "(shown with the token)" not in marked.get("/api/task", TOKEN, id="raises").text


def test_what_is_withheld_is_not_read(marked: Marked) -> None:
    """A megabyte that nobody sees doesn't leave Redis, however often it is asked for."""

    def sent() -> int:
        return int(marked.rig.raw.info("stats")["total_net_output_bytes"])

    before = sent()
    assert marked.get("/api/letter", id="large").json()["body_bytes"] > LARGE
    between = sent()
    assert between - before < LARGE
    assert marked.get("/api/letter", TOKEN, id="large").json()["is_cut"]
    assert sent() - between > LARGE
