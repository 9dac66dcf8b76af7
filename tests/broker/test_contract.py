"""The published schemas: up to date, well-formed, and of one mind with routing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from groupflow.broker.consumer import Delivery
from groupflow.broker.contract import asyncapi, message_schema
from groupflow.flow.admission import Admission
from groupflow.settings.model import Settings

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
NESTED = Settings(fields={
    "app": "meta.app", "tenant": "header.x-tenant", "type": "meta.kind",
    "priority": "meta.priority", "delay": "header.wait",
})  # fmt: skip


@pytest.mark.parametrize(
    ("file", "make"), [("message.schema.json", message_schema), ("asyncapi.json", asyncapi)]
)
def test_the_documents_are_up_to_date(file: str, make: Any) -> None:
    """Write them again with: groupflow schema [--format asyncapi] > docs/schemas/…"""
    assert orjson.loads((SCHEMAS / file).read_bytes()) == make(Settings())


@pytest.mark.parametrize("settings", [Settings(), NESTED], ids=["default", "nested"])
def test_the_schema_is_a_schema(settings: Settings) -> None:
    Draft202012Validator.check_schema(message_schema(settings))


MESSAGES: list[dict[str, Any]] = [
    {"properties": {"type": "t"}, "body": {}},
    {"properties": {"type": "t", "message_id": "a"}, "headers": {}, "body": {"tenant_id": 42}},
    {"properties": {"type": "t"}, "headers": {"x-delay": 100, "x-priority": "-1.5"}, "body": {}},
    {"properties": {"type": "t"}, "headers": {"x-delay": -100}, "body": {}},
    {"properties": {"type": "t"}, "headers": {"x-delay": None}, "body": {"app_name": ""}},
    {"properties": {"type": "t", "expiration": "60000"}, "headers": {"x-expires": 5}, "body": {}},
    {"properties": {"type": "t", "expiration": "soon"}, "body": {}},
    {"properties": {"type": "t"}, "headers": {"x-expires": 0}, "body": {}},
    {"body": {"type": "t", "app_name": "crm", "tenant_id": "acme"}},
    {"properties": {"type": ""}, "body": {"type": "t"}},
    {"body": {"meta": {"kind": "t", "priority": 5, "app": 7}}, "headers": {"x-tenant": "a"}},
    {"body": {"meta": {"kind": "t", "priority": None}}, "headers": {"wait": "1.5"}},
    {"body": {"tenant_id": 42}, "headers": {"x-cancel": "order-1"}},
    {"body": {}, "headers": {"x-cancel": ""}},
    {"properties": {"type": "t"}, "body": {}, "headers": {"x-cancel": 7}},
    {"properties": {"type": "t"}, "body": {}, "headers": {"x-cancel": "x" * 256}},
    {"properties": {}, "body": {}},
    {"body": {"type": ""}},
    {"body": {"type": 7}},
    {"body": {"type": None}},
    {"properties": {"type": "t"}, "body": {"tenant_id": 1.5}},
    {"properties": {"type": "t"}, "body": {"tenant_id": True}},
    {"properties": {"type": "t"}, "body": {"tenant_id": ["a"]}},
    {"properties": {"type": "t"}, "body": {"app_name": "a\u0007b"}},
    {"properties": {"type": "t"}, "body": {"app_name": "x" * 256}},
    {"properties": {"type": "x" * 256}, "body": {}},
    {"properties": {"type": "t\n"}, "body": {}},
    {"properties": {"type": "t", "message_id": "a\u0000"}, "body": {}},
    {"properties": {"type": "t"}, "headers": {"x-delay": 1e12}, "body": {}},
    {"properties": {"type": "t"}, "headers": {"x-delay": "soon"}, "body": {}},
    {"properties": {"type": "t"}, "headers": {"x-priority": -4e7}, "body": {}},
    {"properties": {"type": "t"}, "body": [1]},
    {"properties": {"type": "t"}, "body": {"meta": {"priority": "5"}}},
    {"properties": {"type": "t"}, "body": {}, "headers": {"wait": -1}},
    {"properties": {"type": "t"}, "body": {}, "headers": {"x-tenant": 1.5}},
]


@pytest.mark.parametrize("settings", [Settings(), NESTED], ids=["default", "nested"])
@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: orjson.dumps(m).decode()[:60])
def test_schema_and_admission_agree(settings: Settings, message: dict[str, Any]) -> None:
    """What the schema takes becomes a task; what it refuses, a dead letter."""
    admission = Admission(settings.router(), max_body=1000, step_aside=frozenset())
    properties = dict.fromkeys(("message_id", "type", "priority")) | message.get("properties", {})
    body, headers = orjson.dumps(message["body"]), message.get("headers", {})
    arrival = admission.admit(Delivery(tag=1, body=body, headers=headers, **properties))
    errors = list(Draft202012Validator(message_schema(settings)).iter_errors(message))
    assert bool(errors) == bool(arrival.dead), (arrival.dead, [e.message for e in errors])


def test_asyncapi_is_whole() -> None:
    """Its references lead somewhere, its schemas are schemas, its operations have channels."""
    document = asyncapi(NESTED)
    assert document["asyncapi"] == "3.0.0"
    assert set(document) >= {"info", "channels", "operations", "components"}
    for reference in _references(document):
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
    for operation in document["operations"].values():
        assert operation["action"] in ("send", "receive")
        assert "$ref" in operation["channel"]
    task = document["components"]["messages"]["task"]
    Draft202012Validator.check_schema(task["payload"])
    Draft202012Validator.check_schema(task["headers"])
    assert {"message_id", "type", "x-delay", "x-expires", "x-tenant"} <= set(
        task["headers"]["properties"]
    )


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [each for part in value.values() for each in _references(part)]
    if isinstance(value, list):
        return [each for part in value for each in _references(part)]
    return []
