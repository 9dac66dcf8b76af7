"""The OpenAPI 3.1 description, made of the same entries as the routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from groupflow.ops.page.endpoints import Endpoint
from groupflow.ops.page.problems import Problem

_REF = "#/components/schemas/{model}"
_PROBLEMS = {
    400: "The input can't be used",
    401: "The token is missing or wrong",
    403: "This daemon does not allow it, or another site's page asked",
    404: "It is not there",
    411: "The body comes in chunks, without a Content-Length",
    413: "The body is too long",
    415: "The body is not declared as JSON",
    429: "Too many wrong tokens come just now",
    503: "Redis does not answer",
}


def describe(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The description as JSON would have it."""
    schemas = _Schemas([*(e.answers for e in endpoints), Problem])
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schemas)
        paths.setdefault(f"/api{endpoint.path}", {})[endpoint.method.lower()] = operation
    paths |= _other_paths()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "groupflow",
            "version": version,
            "summary": "What a groupflow cluster does, and the few things that can be done to it.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.definitions,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schemas:
    """JSON schemas of the answers' types, those that they share in one place."""

    def __init__(self, types: Sequence[Any]) -> None:
        named = {_name(each): each for each in types}
        mode: JsonSchemaMode = "serialization"
        inputs = [(name, mode, TypeAdapter(each)) for name, each in named.items()]
        found, shared = TypeAdapter.json_schemas(inputs, ref_template=_REF)
        self._by_name = {name: schema for (name, _), schema in found.items()}
        self.definitions = {
            name: _without_prose(schema) for name, schema in sorted(shared["$defs"].items())
        }

    def of(self, answers: Any) -> dict[str, Any]:
        """The schema of one answer."""
        return dict(self._by_name[_name(answers)])


def _name(answers: Any) -> str:
    if get_origin(answers) is list:
        return f"{get_args(answers)[0].__name__}s"
    return str(answers.__name__)


def _without_prose(schema: dict[str, Any]) -> dict[str, Any]:
    """A docstring's first paragraph is enough of a description."""
    if "description" in schema:
        schema = {**schema, "description": schema["description"].partition("\n\n")[0]}
    return schema


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    asked = endpoint.asks.model_json_schema(ref_template=_REF)
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method}{endpoint.path}".lower().replace("/", "_"),
        "summary": endpoint.summary,
        "security": [{"token": []}] if endpoint.acts else [{}, {"token": []}],
    }
    problems = [400, 401, 403, 429, 503]
    if endpoint.may_miss:
        problems.append(404)
    if endpoint.method == "GET":
        required = asked.get("required", [])
        operation["parameters"] = [
            _parameter(name, schema, name in required)
            for name, schema in asked.get("properties", {}).items()
        ]
    else:
        problems += [411, 413, 415]
        content = {"application/json": {"schema": _without_prose(asked)}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = {
        "200": {
            "description": "As asked",
            "content": {"application/json": {"schema": schemas.of(endpoint.answers)}},
        },
        **{str(status): _problem(status) for status in sorted(problems)},
    }
    return operation


def _other_paths() -> dict[str, Any]:
    """What is no question to the store with an answer in JSON."""

    def get(name: str, summary: str, statuses: dict[int, str], kind: str) -> dict[str, Any]:
        responses = {
            str(status): {"description": said, "content": {kind: {}}}
            for status, said in statuses.items()
        }
        return {"get": {"operationId": name, "summary": summary, "responses": responses}}

    text, json = "text/plain", "application/json"
    ready = {200: "Ready", 503: "Not ready; `checks` says which part and why"}
    stream = "Server-sent events: `overview` once a second, `trouble` where Redis does not answer"
    return {
        "/api/events": get("get_events", stream, {200: "The stream"}, "text/event-stream"),
        "/api/openapi.json": get("get_openapi", "This description", {200: "As asked"}, json),
        "/livez": get("get_livez", "Is the process alive", {200: "It is"}, text),
        "/startupz": get("get_startupz", "Has it begun", {200: "Yes", 503: "Not yet"}, text),
        "/readyz": get("get_readyz", "Is it ready for work", ready, json),
        "/metrics": get("get_metrics", "For Prometheus", {200: "As asked"}, text),
    }


def _parameter(name: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    schema = dict(schema)
    description = schema.pop("description", None)
    told = {"description": description} if description else {}
    return {"name": name, "in": "query", "required": required, **told, "schema": schema}


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model="Problem")}
    return {
        "description": _PROBLEMS[status],
        "content": {"application/problem+json": {"schema": schema}},
    }
