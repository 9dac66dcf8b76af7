"""Each endpoint by one table: who asks what, and the status and words of the answer.

Every answer has the kind and the shape that the API's description promises, and nothing that is
refused is taken in.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeAlias
from urllib.parse import quote

import jsonschema
import orjson
import pytest
from openapi_spec_validator import validate
from starlette.requests import Request

from groupflow.operate.namespace import Namespace
from groupflow.ops.page.endpoints import Caller
from groupflow.ops.page.publishing import NewTask, Publishing
from groupflow.servers import RabbitmqServer
from tests.broker.wires import make_queue, proxied
from tests.endtoend.rig import Job
from tests.page.context import context_of
from tests.page.world import HOSTILE, HOSTILE_ID, LOOKER, NO_TYPE, PUBLISHER, SECRET, TOKEN, World
from tests.turns import turns

Row: TypeAlias = tuple[str, str, Any, int, str]  # right, request, body, status, words
TOKENS = {"": "", "all": TOKEN, "look": LOOKER, "publish": PUBLISHER}


def _body(id_: str) -> Any:
    return orjson.loads(Job(id_).body)


def _nested(deep: int, innermost: Any = 1) -> Any:
    return innermost if deep == 0 else {"a": _nested(deep - 1, innermost)}


def _headers(**headers: Any) -> dict[str, Any]:
    return {"type": "work", "body": {"app_name": "other", "tenant_id": 1}, "headers": headers}


SHOWN = [
    "access", "overview", "samples", "samples?hours=24", "tops", "limits", "scans",
    "daemon?name=d1", "partitions", "schedules",
    *(f"groups?state={s}" for s in ("ready", "running", "delayed", "paused", "drained")),
    "groups?text=ready-01&tenant=7&limit=3", "tenants?limit=5", "tenants?name=7",
    "group?key=contact/1:42", f"group?key={quote(HOSTILE)}", "group?key=nobody's",
    *(f"tasks?state={s}" for s in ("queued", "running", "delayed", "done")),
    "tasks?id=ready-00&type=wor*&tenant=7&group=ready&older=0.001", "body?id=run-0",
    "task?id=run-0", f"task?id={quote(HOSTILE_ID)}", "task?id=plain-0",
    "task?id=gave-0", "result?id=gave-0", "group?key=report:42", "group?key=report:42&lately=0",
    *(f"types?hours={hours}" for hours in (1, 6, 24)), "dead/reasons", "dead/reasons?type=fail",
    "dead", "dead?reason=on+purpose&limit=3", "letter?id=dead-0", f"letter?id={NO_TYPE}",
    "configuration", "actions", "actions?limit=1",
]  # fmt: skip
LOOKS: list[tuple[str, int, str]] = [
    ("groups?state=sleeping", 400, "state"),
    ("groups?state=drained&tenant=7", 400, "tenant"),
    ("groups?limit=100000", 400, "limit"),
    *((f"groups?cursor={no}", 400, "cursor") for no in ("1;+DROP", "1-2", "x", "-1", "1--")),
    *((f"dead?passed={no}", 400, "") for no in ("1-2", "x", "-1", "9" * 23)),
    ("groups?state=parked&cursor=" + "9" * 20, 400, "cursor"),
    ("groups?cursor=" + "9" * 5000, 400, "cursor"),
    ("groups?cursor=\N{ARABIC-INDIC DIGIT ONE}", 400, "cursor"),
    ("groups?text=" + "x" * 2000, 400, "text"),
    ("tenants?cursor=1", 400, "cursor"),
    ("tenants?cursor=7.3", 400, "begin with 0"),
    (f"tenants?cursor=0.{10**19}", 400, "cursor"),
    ("group", 400, "key"),
    ("actions?limit=1001", 400, "limit"),
    ("group?key=x&colour=red", 400, "colour"),
    ("group?key=x&lately=11", 400, "lately"),
    ("daemon?name=nobody", 404, "no such thing"),
    ("scan?name=nobody", 404, "no such thing"),
    ("samples?hours=2", 400, "hours"),
    ("task?id=nobody", 404, "no such thing"),
    ("task?id=%ff%00", 404, ""),
    ("letter?id=run-0", 404, "no such thing"),
]
NO_OBJECTS: list[Any] = [[], "text", 1, b"null"]
ACTS: list[tuple[str, Any, int, str]] = [
    ("route", {"body": '{"type": "work", "app_name": "plain"}'}, 200, '"plain"'),
    ("route", {"body": "no json"}, 200, "dead letter"),
    ("route", {"body": "[]", "headers": {"x": "y"}}, 200, "JSON object"),
    ("route", {"body": 3}, 400, "body"),
    *(("route", body, 400, "Send a JSON object.") for body in NO_OBJECTS),
    ("dead/redrive", {"ids": []}, 400, "ids"),
    ("dead/redrive", {"ids": ["nobody"]}, 200, "nobody"),
    ("dead/drop", {"ids": ["nobody"]}, 200, "nobody"),
    ("dead/drop", {"ids": ["a"] * 501}, 400, "ids"),
    ("dead/drop", {"ids": ["a"], "by": "a\nb"}, 400, "by"),
    ("dead/drop", {"tenant": "nobody"}, 200, '"matching":0,"next":null'),
    ("dead/drop", {"everything": True, "dry_run": True}, 200, '"done":[],"stayed":[],"matching":'),
    ("dead/drop", {"everything": True, "cursor": "9.1"}, 400, "begin with 0"),
    ("dead/drop", {"everything": True, "cursor": "x"}, 400, "cursor"),
    ("dead/drop", {"type": "fail", "since": 0}, 400, "since"),
    ("dead/drop", {"cause": "row"}, 400, "cause"),
    ("dead/drop", {"cause": "0123456789"}, 200, '"matching":0,"next":null'),
    ("dead/drop", {"ids": ["a"], "type": "fail"}, 400, "not both"),
    ("dead/drop", {"ids": ["a"], "dry_run": True}, 400, "not both"),
    ("dead/drop", {"ids": ["a"], "body": "{}"}, 400, "unknown names: 'body'"),
    ("dead/redrive", {"type": "fail", "body": "{}"}, 400, "name its id alone"),
    ("dead/redrive", {"ids": ["dead-0"], "body": "{}"}, 200, "its tenant would be none, and was"),
    ("dead/redrive", {"ids": ["dead-0"], "body": "{"}, 200, "not JSON"),
    ("task/cancel", {}, 400, "one of the three"),
    ("task/cancel", {"ids": ["a"], "group": "g"}, 400, "one of the three"),
    ("task/cancel", {"ids": ["a"], "dry_run": True}, 400, "name no ids"),
    ("task/cancel", {"type": "t", "tenant": "1"}, 400, "name ids"),
    ("task/cancel", {"type": "t", "cursor": "0.7.1"}, 400, "begin with 0"),
    ("task/cancel", {"ids": ["a"], "reason": "a\nb"}, 400, "reason"),
    ("task/cancel", {"ids": ["nobody"]}, 200, '"verdict":"unknown"'),
    ("task/cancel", {"group": "nobody"}, 200, '"waiting":0,"running":[],"next":null'),
    ("task/cancel", {"type": "nobody.*", "dry_run": True}, 200, '"next":null'),
    ("task/drop", {}, 400, "ids"),
    ("task/drop", {"ids": ["a"], "delayed": "g"}, 400, "delayed"),
    ("task/drop", {"ids": ["nobody"]}, 200, "nobody"),
    ("task/run-now", {"delayed": "nobody"}, 200, "[]"),
    ("pause", {}, 400, "everything"),
    ("pause", {"group": "a", "everything": True}, 400, "everything"),
    ("resume", {"group": "never paused"}, 200, "false"),
    ("pause", {"group": "never was"}, 200, "nothing is known of group never was: no task of it "),
    ("resume", {"group": "never was"}, 200, '{"changed":true}'),
    ("limit", {"type": "was.*", "rate": "1/s"}, 200, "is known of type was.*: no"),
    ("limit/end", {"type": "was.*"}, 200, '{"changed":true}'),
    ("limit", {"group": "a", "tenant": "b", "rate": "1/s"}, 400, "tenant"),
    ("limit", {"rate": "1/s"}, 400, "tenant"),
    ("limit", {"group": "a", "concurrency": 0}, 400, "concurrency"),
    ("limit", {"tenant": "a", "rate": "fast"}, 400, "rate"),
    ("limit", {"tenant": "a", "rate": "1/s", "seconds": 0}, 400, "seconds"),
    ("limit", {"tenant": "a", "rate": "1/s", "seconds": 1e9}, 400, "seconds"),
    ("limit/end", {"tenant": "never limited"}, 200, "false"),
    *((f"schedules/{verb}", {"name": "nobody"}, 404, "") for verb in ("run", "pause", "resume")),
    *((f"scans/{verb}", {"name": "nobody"}, 404, "") for verb in ("wake", "pause", "resume")),
    ("limit/end", {}, 400, "tenant"),
]
RIGHTS: list[Row] = [
    ("all", "POST resume", {"group": "nobody:1"}, 200, ""),
    ("look", "POST resume", {"group": "nobody:1"}, 403, "The token of looker hasn't the right"),
    ("publish", "POST resume", {"group": "nobody:1"}, 403, "hasn't the right"),
    ("all", "GET letter?id=dead-0", None, 200, '"is_withheld":false'),
    ("look", "GET letter?id=dead-0", None, 200, '"is_withheld":false'),
    ("publish", "GET letter?id=dead-0", None, 200, '"is_withheld":true'),
    ("all", "GET task?id=gave-0", None, 200, '"result":{"gave":'),
    ("publish", "GET task?id=gave-0", None, 200, '"result":null,"result_error":"(shown'),
    ("look", "GET result?id=gave-0", None, 200, f'number\\":{2**60 + 1}'),
    ("publish", "GET result?id=gave-0", None, 200, '"body":null'),
    ("look", "GET result?id=plain-0", None, 404, "no such thing"),
    ("", "GET group?key=report:42", None, 200, '"lately":[{"id":"gave-0","state":"done"'),
    ("", "GET group?key=report:42", None, 200, '"done":1,"others":0,"seconds"'),
    ("", "GET group?key=report:42&lately=0", None, 200, '"lately":[]'),
    ("all", "GET access", None, 200, '"may_act":true'),
    ("look", "GET access", None, 200, '"may_act":false,"knows_token":true,"has_tokens":true'),
    ("publish", "GET access", None, 200, '"may_act":false,"knows_token":true'),
    ("", "GET access", None, 200, '"may_act":false,"knows_token":false'),
    ("all", "POST tasks", {"body": {}, "type": 5}, 400, "type"),
    ("look", "POST tasks", {"body": {}, "type": "t"}, 403, "hasn't the right"),
]
PUBLISHED: list[tuple[Any, int, str]] = [
    ({"body": {"tenant_id": 1}}, 422, "type"),
    ({"type": "work", "body": {"app_name": "crm", "tenant_id": 1}}, 422, "entity"),
    ({"type": "work", "body": {}, "id": "a\u0000b"}, 422, "control"),
    ({"type": "work", "body": {"n": "x" * 200_000}}, 422, "max_body"),
    ({"type": "work", "body": _nested(300, {})}, 422, "JSON"),
    (_headers(a="x" * 200_000), 422, "max_headers"),
    (_headers(a=2**63), 422, "AMQP can't carry"),
    (_headers(CC=["groupflow.other"]), 422, "CC"),
    (_headers(BCC="x"), 422, "BCC"),
    ({}, 400, ""),
    ({"body": []}, 400, ""),
    ({"body": "x"}, 400, ""),
    ({"body": {}, "delay": -1}, 400, ""),
    ({"body": {}, "what": 1}, 400, ""),
    (b'{"body": {"n": 1e400}}', 400, ""),
    (b'{"body": {"n": %s}}' % (b"1" * 4000), 400, ""),
    (b'{"body": {"n": "\\ud800"}}', 400, ""),
    (b'{"body": {}, "delay": 1e400}', 400, ""),
    (b'{"body": {}, "priority": NaN}', 400, ""),
    (b'{"body": {}, "headers": {"a": 1e400}}', 400, ""),
    (b'{"body": {}, "headers": {"\\udfff": 1}}', 400, ""),
]
TABLE: list[Row] = [
    *(("", f"GET {path}", None, 200, "") for path in SHOWN),
    *(("", f"GET {path}", None, status, words) for path, status, words in LOOKS),
    *(("all", f"POST {path}", *more) for path, *more in ACTS),
    *RIGHTS,
    *(("publish", "POST tasks", *row) for row in PUBLISHED),
]


@pytest.fixture(scope="module")
def description(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.get("openapi.json")
    return found


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]} {row[3]}"[:70])
def test_an_answer_is_as_described(description: dict[str, Any], world: World, row: Row) -> None:
    right, (method, path), body, status, words = row[0], row[1].split(" ", 1), *row[2:]
    headers = {"content-type": "application/json"} if method == "POST" else {}
    if right:
        headers["authorization"] = f"Bearer {TOKENS[right]}"
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    taken = world.rig.count("taken")
    answer = world.http.request(method, f"/api/{path}", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert words in (answer.text if status == 200 else answer.json()["detail"])
    if status >= 400:
        assert answer.json()["detail"]
        assert answer.headers["content-type"] == "application/problem+json"
        assert world.rig.count("taken") == taken
    described = description["paths"][f"/api/{path.partition('?')[0]}"][method.lower()]["responses"]
    ((kind, shape),) = described[str(status)]["content"].items()
    assert answer.headers["content-type"].partition(";")[0] == kind
    if "schema" in shape:
        schema = {**shape["schema"], "components": description["components"]}
        jsonschema.validate(answer.json(), schema, jsonschema.Draft202012Validator)


def test_the_description_is_openapi_and_complete(description: dict[str, Any], world: World) -> None:
    """Each path with another method answers 405, a path that isn't there 404."""
    validate(description)
    for path, methods in description["paths"].items():
        answer = world.http.request("PATCH", path)
        assert answer.status_code == 405, path
        assert {each.upper() for each in methods} <= set(answer.headers["allow"].split(", "))
    assert world.http.get("/api/nothing").status_code == 404
    assert LOOKER not in world.daemon.log.read_text()


def test_a_refusal_tells_the_first_of_many_unknown_names(world: World) -> None:
    """And no more than that is made of the others."""
    names = {f"n{number:04}" + "x" * 100: 1 for number in range(5_000)}
    detail = world.http.post("/api/route", json=names).json()["detail"]
    assert "'n0004xxx" in detail
    assert detail.endswith("and 4995 more.")
    assert len(detail) < 600


def test_what_is_published_is_run_once(world: World) -> None:
    """Sent again it is the same task."""

    def publish(**task: Any) -> Any:
        headers = {"authorization": f"Bearer {PUBLISHER}"}
        answer = world.http.post("/api/tasks", json={"type": "work", **task}, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    taken = world.rig.count("taken")
    for _ in range(3):
        assert publish(id="by-http", body=_body("by-http")) == {"id": "by-http"}
    world.rig.wait_for_start("by-http")
    world.rig.wait_for_start(publish(body=_body("fresh"))["id"])
    assert world.rig.count("taken") == taken + 2


async def test_a_reload_ends_no_publishing(rabbitmq_server: RabbitmqServer) -> None:
    """What the old publisher has under way when the first task comes after it."""
    async with proxied(rabbitmq_server) as (proxy, url):
        sections = {"rabbitmq": {"url": url, "queue": "page-reloads"}}
        await make_queue(rabbitmq_server.url, "page-reloads")
        context = context_of(Namespace([]), sections)
        publishing = Publishing(context)
        publish = publishing._publish
        caller = Caller(Request({"type": "http", "client": None}), None, sees_contents=False)
        await publish(NewTask(body={}, type="t"), caller)
        proxy.hold("down")
        under_way = asyncio.create_task(publish(NewTask(body={}, type="t", id="a"), caller))
        await turns()
        context.facts = context_of(Namespace([]), sections).facts
        after = asyncio.create_task(publish(NewTask(body={}, type="t", id="b"), caller))
        await turns()
        proxy.release()
        assert [each.id for each in await asyncio.gather(under_way, after)] == ["a", "b"]
        await publishing.close()


def test_samples_are_taken(world: World) -> None:
    """By the daemon itself, with the latencies of what it did."""
    world.wait(lambda: sum(sample["measured"] for sample in world.get("samples")) >= 5)
    assert world.get("samples")[-1]["running"] == 2
    assert any(sample["latency_p50"] for sample in world.get("samples"))


def test_no_secret_is_shown(world: World) -> None:
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


def test_dead_letters_are_redriven_and_dropped(world: World) -> None:
    """In the log: what, by whom and from where."""
    answer = world.act("dead/redrive", {"ids": ["dead-7", "dead-7", "nobody"], "by": "me"}).json()
    assert (answer["done"], [each["id"] for each in answer["stayed"]]) == (["dead-7"], ["nobody"])
    world.wait(lambda: "dead-7" in world.rig.dead())  # it ran, and died again
    unroutable = world.act("dead/redrive", {"ids": [NO_TYPE]}).json()
    assert "can't be routed" in unroutable["stayed"][0]["reason"]
    assert world.act("dead/drop", {"ids": ["dead-7"]}).json()["done"] == ["dead-7"]
    assert "dead-7" not in world.rig.dead()
    (event,) = world.daemon.events("operator.dropped")[-1:]
    assert (event["by"], event["peer"], event["tasks"]) == (None, "127.0.0.1", ["dead-7"])
    assert "me" in [event["by"] for event in world.daemon.events("operator.redriven")]


def test_the_delayed_tasks_of_a_group_are_run_now_and_dropped(world: World) -> None:
    """What runs is left alone."""
    facts = {"delay_s": 9000, "gate": str(world.rig.gate())}
    both = ["late-1", "late-2"]
    world.rig.publish(Job(id_, "late", facts=facts) for id_ in both)
    world.wait(lambda: world.get("group", key="late:42")["why"]["queued"] == 2)
    answer = world.act("task/run-now", {"delayed": "late:42"}).json()
    assert (sorted(answer["done"]), answer["stayed"]) == (both, [])
    assert world.get("group", key="late:42")["why"]["state"] in ("ready", "running")
    answer = world.act("task/drop", {"ids": [*both, "run-0", "nobody"], "by": "me"}).json()
    assert answer["done"] == both
    reasons = {each["id"]: each["reason"].split()[0] for each in answer["stayed"]}
    assert reasons == {"run-0": "it", "nobody": "nothing"}
    events = world.daemon.events("operator.dropped_waiting")
    assert ("me", both) in [(event["by"], event["tasks"]) for event in events]


def test_a_group_and_a_task_are_cancelled(world: World) -> None:
    """Counted first, and logged with who wanted it."""
    world.rig.publish(Job(f"mistake-{n}", "mistake") for n in range(3))  # all workers are busy
    world.wait(lambda: world.get("group", key="mistake:42")["why"]["queued"] == 3)
    group = {"group": "mistake:42"}
    counted = world.act("task/cancel", {**group, "dry_run": True}).json()
    assert (counted["waiting"], counted["running"]) == (3, [])
    one = world.act("task/cancel", {"ids": ["mistake-2"], "reason": "wrong file"}).json()
    assert one["tasks"] == [{"id": "mistake-2", "verdict": "cancelled"}]
    told = world.get("task", id="mistake-2")
    assert (told["state"], told["cancelled_by"]) == ("cancelled", "operator")
    assert world.act("task/cancel", {**group, "by": "me"}).json()["waiting"] == 2
    noted = world.get("actions", limit=2)
    assert [(each["by"], each["token"], each["count"]) for each in noted] == [
        ("me", "operator", 2), ("operator", "operator", 1)
    ]  # fmt: skip
    assert [each["facts"] for each in noted] == [group, {}]  # a reason is for those who may act
    event = world.daemon.events("operator.cancelled")[-1]
    assert (event["by"], event["group"], event["ended"]) == ("me", "mistake:42", 2)


def test_a_schedule_runs_once_at_a_time(world: World) -> None:
    """By hand too: where one is under way the next is refused, and its runs are told."""
    assert world.act("pause", {"everything": True}).status_code == 200  # so that its task waits
    task = world.act("schedules/run", {"name": "yearly", "by": "Ada"}).json()["task"]
    assert task.startswith("schedule:yearly:")
    refused = world.act("schedules/run", {"name": "yearly"})
    assert (refused.status_code, task in refused.json()["detail"]) == (400, True)
    world.wait(lambda: world.get("schedules")["schedules"][0]["last_task"] == task)
    (shown,) = world.get("schedules")["schedules"]
    assert (shown["last_outcome"], shown["runs"][0]["kind"]) == ("queued", "now")
    done = world.rig.count("done")
    assert world.act("resume", {"everything": True}).status_code == 200
    world.wait(lambda: world.rig.count("done") == done + 1)
