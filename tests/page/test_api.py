"""The API: what it answers is what it describes, whatever it is asked."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import orjson
import pytest
from openapi_spec_validator import validate

from tests.endtoend.rig import Job
from tests.page.world import HOSTILE, HOSTILE_ID, SECRET, TOKEN, World

READS: list[tuple[str, dict[str, Any]]] = [
    ("access", {}),
    ("overview", {}),
    ("samples", {}),
    ("tops", {}),
    *(("groups", {"state": s}) for s in ("ready", "running", "delayed", "parked", "paused")),
    ("limits", {}),
    ("tenants", {"limit": 5}),
    ("tenants", {"name": "7"}),
    ("groups", {"text": "ready-01", "tenant": "7", "limit": 3}),
    ("group", {"key": "contact/1:42"}),
    ("group", {"key": HOSTILE}),
    ("group", {"key": "nobody's"}),
    *(("tasks", {"state": s}) for s in ("queued", "running", "delayed", "done")),
    ("tasks", {"id": "ready-00", "type": "wor*", "tenant": "7", "group": "ready", "older": 0.001}),
    ("scans", {}),
    ("partitions", {}),
    *(("types", {"hours": hours}) for hours in ("1", "6", "24")),
    ("dead/reasons", {}),
    ("dead/reasons", {"type": "fail"}),
    ("body", {"id": "run-0"}),
    ("task", {"id": "run-0"}),
    ("task", {"id": HOSTILE_ID}),
    ("task", {"id": "plain-0"}),
    ("dead", {}),
    ("dead", {"reason": "on purpose", "limit": 3}),
    ("letter", {"id": "dead-0"}),
    ("letter", {"id": "<b>no type</b>"}),
    ("schedules", {}),
    ("configuration", {}),
]


@pytest.fixture(scope="module")
def description(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.get("openapi.json")
    return found


def _fits(description: dict[str, Any], path: str, method: str, answer: httpx.Response) -> None:
    """An answer is of the kind and the shape that the description promises."""
    responses = description["paths"][path][method]["responses"]
    assert str(answer.status_code) in responses, answer.text
    ((kind, content),) = responses[str(answer.status_code)]["content"].items()
    assert answer.headers["content-type"].partition(";")[0] == kind
    if "schema" in content:
        schema = {**content["schema"], "components": description["components"]}
        jsonschema.validate(answer.json(), schema, jsonschema.Draft202012Validator)


class TestDescription:
    def test_it_is_openapi(self, description: dict[str, Any]) -> None:
        validate(description)

    def test_every_route_is_in_it(self, description: dict[str, Any], world: World) -> None:
        """Each path with another method answers 405, a path that isn't there 404."""
        for path, methods in description["paths"].items():
            answer = world.http.request("PATCH", path)
            assert answer.status_code == 405, path
            assert {each.upper() for each in methods} <= set(answer.headers["allow"].split(", "))
        assert world.http.get("/api/nothing").status_code == 404

    @pytest.mark.parametrize(("path", "query"), READS)
    def test_answers_are_as_described(
        self, description: dict[str, Any], world: World, path: str, query: dict[str, Any]
    ) -> None:
        answer = world.http.get(f"/api/{path}", params=query)
        assert answer.status_code == 200, answer.text
        _fits(description, f"/api/{path}", "get", answer)

    @pytest.mark.parametrize(
        ("path", "query", "status", "words"),
        [
            ("groups", {"state": "sleeping"}, 400, "state"),
            ("groups", {"limit": 100_000}, 400, "limit"),
            ("groups", {"cursor": "1; DROP"}, 400, "cursor"),
            ("groups", {"state": "parked", "cursor": "9" * 20}, 400, "cursor"),
            ("groups", {"cursor": "9" * 5000}, 400, "cursor"),
            ("groups", {"cursor": "\N{ARABIC-INDIC DIGIT ONE}"}, 400, "cursor"),
            ("groups", {"text": "x" * 2000}, 400, "text"),
            ("tenants", {"cursor": "1"}, 400, "cursor"),
            ("tenants", {"cursor": "3-7"}, 400, "begin with 0"),
            ("tenants", {"cursor": f"{10**19}-0"}, 400, "cursor"),
            ("group", {}, 400, "key"),
            ("group", {"key": "x", "colour": "red"}, 400, "colour"),
            ("task", {"id": "nobody"}, 404, "no such thing"),
            ("letter", {"id": "run-0"}, 404, "no such thing"),
        ],
    )
    def test_problems_are_as_described(  # noqa: PLR0917
        self,
        description: dict[str, Any],
        world: World,
        path: str,
        query: dict[str, Any],
        status: int,
        words: str,
    ) -> None:
        answer = world.http.get(f"/api/{path}", params=query)
        assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text
        _fits(description, f"/api/{path}", "get", answer)

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("route", {"body": '{"type": "work", "app_name": "plain"}'}, 200),
            ("route", {"body": "no json"}, 200),
            ("route", {"body": 3}, 400),
            ("dead/redrive", {"ids": []}, 400),
            ("dead/redrive", {"ids": ["nobody"]}, 200),
            ("dead/drop", {"ids": ["nobody"]}, 200),
            ("dead/drop", {"ids": ["a"] * 501}, 400),
            ("dead/drop", {"ids": ["a"], "by": "a\nb"}, 400),
            ("task/drop", {}, 400),
            ("task/drop", {"ids": ["a"], "delayed": "g"}, 400),
            ("task/drop", {"ids": ["nobody"]}, 200),
            ("task/run-now", {"delayed": "nobody"}, 200),
            ("pause", {}, 400),
            ("pause", {"group": "a", "everything": True}, 400),
            ("resume", {"group": "never paused"}, 200),
            ("limit", {"group": "a", "tenant": "b", "rate": "1/s"}, 400),
            ("limit", {"rate": "1/s"}, 400),
            ("limit", {"group": "a", "concurrency": 0}, 400),
            ("limit", {"tenant": "a", "rate": "fast"}, 400),
            ("limit", {"tenant": "a", "rate": "1/s", "seconds": 0}, 400),
            ("limit", {"tenant": "a", "rate": "1/s", "seconds": 1e9}, 400),
            ("limit/end", {"tenant": "never limited"}, 200),
            ("limit/end", {}, 400),
        ],
    )
    def test_posts_are_as_described(
        self, description: dict[str, Any], world: World, path: str, body: Any, status: int
    ) -> None:
        answer = world.act(path, body)
        assert answer.status_code == status, answer.text
        _fits(description, f"/api/{path}", "post", answer)


class TestReading:
    def test_pages_go_on(self, world: World) -> None:
        seen: list[str] = []
        cursor = "0"
        while cursor is not None:
            page = world.get("groups", cursor=cursor, limit=50)
            seen += [row["group"] for row in page["groups"]]
            cursor = page["next"]
        assert len(seen) == len(set(seen)) == page["total"] == 119

    def test_strange_names_are_found(self, world: World) -> None:
        group = world.get("task", id=HOSTILE_ID)["group"]
        assert group.startswith("<script>")
        story = world.get("group", key=group)
        assert story["why"]["state"] == "running"
        assert story["why"]["head"] == HOSTILE_ID
        assert world.get("letter", id="<b>no type</b>")["routed_first"]

    def test_samples_are_taken(self, world: World) -> None:
        """By the daemon itself, with the latencies of what it did."""
        world.wait(lambda: sum(sample["measured"] for sample in world.get("samples")) >= 5)
        latest = world.get("samples")[-1]
        assert latest["running"] == 2
        assert any(sample["latency_p50"] for sample in world.get("samples"))

    def test_a_body_is_as_it_came(self, world: World) -> None:
        letter = world.get("letter", TOKEN, id="dead-3")
        assert orjson.loads(letter["body"])["note"] == HOSTILE
        assert letter["body_bytes"] == len(letter["body"].encode())

    def test_no_secret_is_shown(self, world: World) -> None:
        text = world.http.get("/api/configuration").text
        assert TOKEN not in text
        assert "guest:***@" in text
        handlers = world.get("configuration")["settings"]["handlers"]
        assert handlers["hook"]["http"] == "https://hooks.example.com"
        assert handlers["command"]["exec"] == ["true"]
        ways = [
            world.act("route", {"body": "{}", "type": type_}).json()["handler"]
            for type_ in ("hook", "command")
        ]
        assert ways == ["http https://hooks.example.com", "exec true"]
        told = world.raw.hget(world.rig.keys("daemon", "d1"), "settings")
        for shown in (text, str(told), world.daemon.log.read_text()):
            assert SECRET not in shown

    def test_route(self, world: World) -> None:
        body = {"app_name": "crm", "entity": "a", "tenant_id": 42, "type": "work"}
        way = world.act("route", {"body": orjson.dumps(body).decode()}).json()
        assert (way["queue"], way["group"]) == ("grouped", "a:42")
        assert way["handler"] == "tests.endtoend.handlers.work"
        way = world.act("route", {"body": "[]", "headers": {"x": "y"}}).json()
        assert way["queue"] == "dead letter"
        assert "JSON object" in way["reason"]

    def test_events(self, world: World) -> None:
        """Two events a second apart, the totals in each."""
        with world.http.stream("GET", "/api/events") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            found = []
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    found.append(orjson.loads(line[6:]))
                if len(found) == 2:
                    break
        assert found[1]["at"] > found[0]["at"]
        assert found[0]["ready"] == 119


class TestActing:
    def test_redrive_and_drop(self, world: World) -> None:
        answer = world.act("dead/redrive", {"ids": ["dead-7", "dead-7", "nobody"], "by": "me"})
        assert answer.json()["done"] == ["dead-7"]
        assert [stayed["id"] for stayed in answer.json()["stayed"]] == ["nobody"]
        world.wait(lambda: "dead-7" in world.rig.dead())  # it ran, and died again
        unroutable = world.act("dead/redrive", {"ids": ["<b>no type</b>"]}).json()
        assert "can't be routed" in unroutable["stayed"][0]["reason"]
        assert world.act("dead/drop", {"ids": ["dead-7"]}).json()["done"] == ["dead-7"]
        assert "dead-7" not in world.rig.dead()
        (event,) = world.daemon.events("operator.dropped")[-1:]
        assert (event["by"], event["peer"], event["tasks"]) == (None, "127.0.0.1", ["dead-7"])
        assert "me" in [event["by"] for event in world.daemon.events("operator.redriven")]

    def test_waiting_tasks(self, world: World) -> None:
        """Dropped or run now, one or a group's delayed; what runs is left alone."""
        facts = {"delay_s": 9000, "gate": str(world.rig.gate())}
        world.rig.publish(Job(f"late-{n}", "late", facts=facts) for n in range(3))
        world.wait(lambda: world.get("group", key="late:42")["why"]["queued"] == 3)
        answer = world.act("task/drop", {"ids": ["late-0", "run-0", "nobody"], "by": "me"}).json()
        assert answer["done"] == ["late-0"]
        assert {each["id"]: each["reason"].split()[0] for each in answer["stayed"]} == {
            "run-0": "it",
            "nobody": "nothing",
        }
        assert world.get("task", id="late-0")["state"] == "dropped"
        answer = world.act("task/run-now", {"delayed": "late:42"}).json()
        assert (sorted(answer["done"]), answer["stayed"]) == (["late-1", "late-2"], [])
        assert world.get("group", key="late:42")["why"]["state"] in ("ready", "running")
        both = ["late-1", "late-2"]  # so that the world is as it was
        assert world.act("task/drop", {"ids": both}).json()["done"] == both
        events = world.daemon.events("operator.dropped_waiting")
        assert ("me", ["late-0"]) in [(event["by"], event["tasks"]) for event in events]

    def test_pause_and_resume(self, world: World) -> None:
        assert world.act("pause", {"group": "ready-003:8", "by": "me"}).json() == {"changed": True}
        assert world.act("pause", {"group": "ready-003:8"}).json() == {"changed": False}
        why = world.get("group", key="ready-003:8")["why"]
        assert (why["state"], why["reason"]) == ("paused", "me paused the group")
        assert world.act("resume", {"group": "ready-003:8"}).json() == {"changed": True}
        assert world.act("pause", {"everything": True, "by": "me"}).json() == {"changed": True}
        world.wait(lambda: world.get("overview")["everything_paused"] is not None)
        assert world.act("resume", {"everything": True}).json() == {"changed": True}
