"""Publishing over HTTP: confirmed by RabbitMQ, refused with the reason, safe to send again."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from tests.endtoend.rig import Job
from tests.page.world import PUBLISHER, World


def _publish(world: World, **task: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {PUBLISHER}"}
    return world.http.post("/api/tasks", json=task, headers=headers)


def _body(id_: str, entity: str | None = None, **facts: Any) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(Job(id_, entity, facts=facts).body)
    return body


def _nested(deep: int, innermost: Any = 1) -> Any:
    found = innermost
    for _ in range(deep):
        found = {"a": found}
    return found


def _with_headers(**headers: Any) -> dict[str, Any]:
    return {"type": "work", "body": {"app_name": "other", "tenant_id": 1}, "headers": headers}


def test_a_task_is_run(world: World) -> None:
    answer = _publish(world, id="by-http", type="work", body=_body("by-http"))
    assert (answer.status_code, answer.json()) == (200, {"id": "by-http"})
    world.rig.wait_for_start("by-http")


def test_sent_again_it_is_one_task(world: World) -> None:
    taken = world.rig.count("taken")
    for _ in range(3):
        assert _publish(world, id="again", type="work", body=_body("again")).status_code == 200
    fresh = _publish(world, type="work", body=_body("fresh")).json()["id"]
    world.rig.wait_for_start(fresh)
    assert world.rig.count("taken") == taken + 2


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"body": {"tenant_id": 1}}, "type"),
        ({"type": "work", "body": {"app_name": "crm", "tenant_id": 1}}, "entity"),
        ({"type": "work", "body": {}, "id": "a\u0000b"}, "control"),
        ({"type": "work", "body": {"n": "x" * 200_000}}, "max_body"),
        (_with_headers(a=_nested(480)), "16 deep"),
        (_with_headers(a=_nested(17)), "16 deep"),
        (_with_headers(a="x" * 100_000), "max_headers"),
        (_with_headers(a="x" * 200_000), "max_headers"),
        (_with_headers(a=[0] * 2000), "over 1024 values"),
        (_with_headers(a=1e39), "AMQP can't carry"),
        (_with_headers(a=2**63), "AMQP can't carry"),
        (_with_headers(**{"a" * 300: 1}), "128 bytes"),
        (_with_headers(CC=["groupflow.other"]), "CC"),
        (_with_headers(BCC="x"), "BCC"),
        ({"type": "a\nb", "body": {}}, "control"),
        ({"type": "work", "body": _nested(300, {})}, "JSON"),
    ],
)
def test_what_cannot_be_routed_is_refused(world: World, task: dict[str, Any], why: str) -> None:
    taken = world.rig.count("taken")
    answer = _publish(world, **task)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert why in answer.json()["detail"]
    assert world.rig.count("taken") == taken


@pytest.mark.parametrize(
    "task", [{}, {"body": []}, {"body": {}, "delay": -1}, {"body": {}, "what": 1}, {"body": "x"}]
)
def test_bad_input(world: World, task: dict[str, Any]) -> None:
    assert _publish(world, **task).status_code == 400


@pytest.mark.parametrize(
    "sent",
    [
        b'{"body": {"n": 1e400}}',
        b'{"body": {"n": %s}}' % (b"1" * 4000),
        b'{"body": {"n": "\\ud800"}}',
        b'{"body": {}, "delay": 1e400}',
        b'{"body": {}, "priority": NaN}',
        b'{"body": {}, "headers": {"a": 1e400}}',
        b'{"body": {}, "headers": {"\\udfff": 1}}',
    ],
)
def test_what_no_parser_would_read_is_refused(world: World, sent: bytes) -> None:
    headers = {"authorization": f"Bearer {PUBLISHER}", "content-type": "application/json"}
    answer = world.http.post("/api/tasks", content=sent, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"]
