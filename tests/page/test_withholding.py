"""A marker in everything that comes from strangers: no GET shows it to who has no token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.endtoend.rig import Job
from tests.page.served import TOKEN, Served, Tables, as_

MARKER = "m4rk3r-of-a-tenant"
LARGE = 1_000_000  # bytes of a body
KINDS = {
    "stderr": "ExitCode",
    "parks": "ExitCode",
    "says": "Dead",
    "raises": "ValueError",
    "door": "rejected",
    "large": "ValueError",
}


REPEATS = ["/bin/sh", "-c", "cat >&2; exit 1"]  # on stderr what it gets
PARKING = {"app": "parking", "key": "{entity}:{tenant_id}", "on_dead": "park", "shares": True}
TABLES: Tables = [
    ("[[groups]]", PARKING),
    ("[handlers.stderr]", {"exec": REPEATS}),
    ("[handlers.later]", {"exec": REPEATS, "max_attempts": 3, "interval": -3600}),
    ("[pools.posts]", {"types": ["post"]}),
]


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
) -> Iterator[Marked]:
    folder, fields = tmp_path_factory.mktemp("marked"), {"priority": "urgency"}
    with closing(Marked(folder, rabbitmq_server, redis_server, TABLES, fields=fields)) as made:
        note, rig = {"note": MARKER}, made.rig
        kinds = ("stderr", None), ("later", "later"), ("post", "held")
        rig.publish(Job(type_, entity, type=type_, facts=note) for type_, entity in kinds)
        rig.publish(
            [
                Job("raises", None, type="quote", facts=note),
                Job("says", None, type="scripted", facts={"do": {"": [f"dead {MARKER}"]}}),
                Job("gave", None, type="scripted", facts={"do": {"": [f"gives {MARKER}"]}}),
                Job("large", None, type="fail", facts={"note": MARKER + "x" * LARGE}),
                Job("door", None, facts={"urgency": MARKER}),
                Job("parks", "parks", type="stderr", facts={**note, "app_name": "parking"}),
                Job("behind", "later", type="later", facts=note),
            ]
        )
        rig.until(lambda: len(rig.dead()) == len(KINDS), "the deaths")
        rig.until(lambda: rig.count("done") == 1, "the result")
        rig.until(lambda: rig.raw.zcard(rig.keys("held")) == 1, "the delayed group")
        order = {"ids": ["large"], "body": Job("", None).body.decode()}
        assert made.http.post("/api/dead/redrive", json=order, headers=as_(TOKEN)).json()["done"]
        rig.until(lambda: len(rig.dead()) == len(KINDS), "its second death")
        path, wanted = "/api/pools/posts/workers/anna", {"limit": 5, "wait": 30}
        answer = made.http.post(f"{path}/claims", json=wanted, headers=as_(TOKEN))
        assert MARKER in answer.text
        [task] = answer.json()["tasks"]
        told = {"id": "post", "fence": task["fence"], "done": 1, "unit": MARKER}
        made.http.post(f"{path}/renewal", json={"progress": [told]}, headers=as_(TOKEN))
        yield made


_IDS = ("id", (*KINDS, "later", "behind", "post", "gave"))
_ASKED = {
    **dict.fromkeys(("letter", "task", "body", "result"), _IDS),
    "group": ("key", ("parks:42", "later:42", "held:42")),
    "groups": ("state", ("ready", "running", "delayed", "parked", "paused", "drained")),
    "tasks": ("state", ("queued", "running", "delayed", "done")),
    **dict.fromkeys(("types", "samples"), ("hours", ("1", "24"))),
    **dict.fromkeys(("daemon", "scan"), ("name", ("d1",))),
    "tenants": ("name", ("", "42")),
}


def _queries(path: str, parameters: set[str]) -> list[dict[str, str]]:
    """What an endpoint is asked, so that it tells of all that there is."""
    if asked := _ASKED.get(path.removeprefix("/api/")):
        return [{asked[0]: value} if value else {} for value in asked[1]]
    assert parameters <= {
        "reason",
        "cause",
        "type",
        "group",
        "tenant",
        "since",
        "passed",
        "limit",
    }, f"{path} asks something that this test does not know"
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
    causes = {each["cause"] for each in marked.get("/api/dead/reasons", TOKEN).json()["reasons"]}
    for cause in causes:  # made of words
        assert marked.get("/api/dead", cause=cause).json()["letters"] == []


def test_the_token_shows_it(marked: Marked) -> None:
    """Each of the deaths but one has it in its very reason: there was something to be left out."""
    for id_ in set(KINDS) - {"large"}:
        for path in ("/api/letter", "/api/task"):
            assert MARKER in marked.get(path, TOKEN, id=id_).json()["reason"], (path, id_)
    for key in ("parks:42", "later:42", "held:42"):
        assert MARKER in marked.get("/api/group", TOKEN, key=key).json()["why"]["reason"]
    assert MARKER in marked.get("/api/task", TOKEN, id="behind").json()["reason"]
    letters = marked.get("/api/dead", TOKEN, reason=MARKER).json()["letters"]
    assert len(letters) == len(KINDS) - 1
    assert not any("errors" in letter for letter in letters), "a list has none for anybody"
    for path in ("/api/letter", "/api/task"):
        [correction] = marked.get(path, TOKEN, id="large").json()["corrections"]
        assert (correction["is_cut"], MARKER in correction["body"]) == (True, True)
        [correction] = marked.get(path, id="large").json()["corrections"]
        assert (correction["body"], correction["bytes"] > LARGE) == (None, True)
    assert MARKER in marked.get("/api/task", TOKEN, id="gave").json()["result"]["gave"]
    assert MARKER in marked.get("/api/result", TOKEN, id="gave").json()["body"]
    for token, unit in ((TOKEN, MARKER), ("", "")):
        found = marked.get("/api/task", token, id="post").json()["progress"]
        assert (found["done"], found["unit"]) == (1, unit)
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
    behind = marked.get("/api/task", id="behind").json()["reason"]
    assert re.match("behind later in its group, which is delayed: .* after ExitCode", behind)
    letter = marked.get("/api/letter", id="raises").json()
    assert letter["is_withheld"]
    assert (letter["body"], letter["body_base64"], letter["headers"]) == (None, None, {})
    assert letter["body_bytes"] > 0
    assert {error["message"] for error in letter["errors"]} == {"(shown with the token)"}
    assert "(shown with the token)" in marked.get("/api/task", id="raises").text
    assert "(shown with the token)" not in marked.get("/api/task", TOKEN, id="raises").text
