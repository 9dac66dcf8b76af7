"""The API's description (OpenAPI 3.1), made of its endpoints; `/api/openapi.json` answers it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter

from groupflow.ops.page.endpoints import Endpoint
from groupflow.ops.page.problems import ProblemDetails
from groupflow.ops.page.shapes import Choosing

_PROBLEMS = {
    400: "The input can't be used",
    401: "The token is missing or wrong",
    403: "This daemon does not allow it, or another site's page asked",
    404: "It is not there",
    408: "The body came too slowly",
    409: "Several tasks have that id: choose one by tenant, or by partition",
    411: "The body comes in chunks, without a Content-Length",
    413: "The body is too long",
    415: "The body is not declared as JSON",
    422: "It is well formed, and can't become, or go on as, a task",
    429: "Too many wrong tokens come just now, or too many lists of this one",
    503: "Redis does not answer, or has no room",
}
_ALWAYS = {400, 401, 403, 429, 503}
_OF_A_BODY = {"POST": {411, 413, 415}, "PUT": {408, 411, 413}}
_OTHERS = {  # what is no question to the store with an answer in JSON
    "/api/events": (
        "Server-sent events: `overview` once a second, `trouble` where Redis does not answer",
        "text/event-stream",
        {200: "The stream"},
    ),
    "/api/openapi.json": ("This description", "application/json", {200: "As asked"}),
    "/livez": ("Is the process alive", "text/plain", {200: "It is"}),
    "/startupz": ("Has it begun", "text/plain", {200: "Yes", 503: "Not yet"}),
    "/readyz": (
        "Is it ready for work",
        "application/json",
        {200: "Ready", 503: "Not ready; `checks` says which part and why"},
    ),
    "/metrics": ("For Prometheus", "text/plain", {200: "As asked"}),
}
_LINES = {"application/x-ndjson": {"schema": {"type": "string", "format": "binary"}}}


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of these endpoints, and of the paths that are none."""
    shapes, shared = TypeAdapter.json_schemas(
        [
            *((each, "serialization", TypeAdapter(each.answers)) for each in endpoints),
            *((each, "validation", TypeAdapter(each.asks)) for each in endpoints if each.has_body),
            ("problem", "serialization", TypeAdapter(ProblemDetails)),
        ],
        ref_template="#/components/schemas/{model}",
    )
    schemas = shared["$defs"]
    for schema in schemas.values():  # a docstring's first paragraph is enough
        if "description" in schema:
            schema["description"] = schema["description"].partition("\n\n")[0]
    paths: dict[str, Any] = {}
    for each in endpoints:
        asked, answered = shapes.get((each, "validation")), shapes[each, "serialization"]
        operations = paths.setdefault(f"/api{each.path}", {})
        operations[each.method.lower()] = _operation(each, asked, answered)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "groupflow",
            "summary": "What a groupflow cluster does, and the few things that can be done to it.",
            "version": version("groupflow"),
        },
        "paths": paths | {path: {"get": _other(path, *facts)} for path, facts in _OTHERS.items()},
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, asked: Any, answered: Any) -> dict[str, Any]:
    name = f"{endpoint.method}{endpoint.path}".lower().replace("/", "_")
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "description": endpoint.about,
        "operationId": re.sub(r"[{}]", "", name),
        "parameters": _parameters(endpoint),
    }
    if endpoint.method == "PUT":
        found["requestBody"] = {"required": True, "content": _LINES}
    elif asked:
        found["requestBody"] = {"required": not endpoint.may_be_empty, "content": _json(asked)}
    statuses = _ALWAYS | _OF_A_BODY.get(endpoint.method, set())
    statuses |= {404} if endpoint.may_miss or "{" in endpoint.path else set()
    statuses |= {409} if issubclass(endpoint.asks, Choosing) else set()
    statuses |= {422} if endpoint.may_be_unfit else set()
    responses = {"200": {"description": "As asked", "content": _json(answered)}}
    problem = {"$ref": "#/components/schemas/ProblemDetails"}
    for status in sorted(statuses):
        content = {"application/problem+json": {"schema": problem}}
        responses[str(status)] = {"description": _PROBLEMS[status], "content": content}
    found["responses"] = responses
    found["security"] = [{"token": []}] if endpoint.right else [{}, {"token": []}]
    return {key: value for key, value in found.items() if value}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    """What stands in the path's braces, and what its query may have."""
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    if endpoint.has_body:
        return found
    asked = TypeAdapter(endpoint.asks).json_schema()
    needed = asked.get("required", ())
    for name, schema in asked["properties"].items():
        about = {"description": schema["description"]} if "description" in schema else {}
        found.append(
            {"name": name, "in": "query", "required": name in needed, "schema": schema, **about}
        )
    return found


def _other(path: str, summary: str, kind: str, statuses: dict[int, str]) -> dict[str, Any]:
    name = path.rpartition("/")[2].partition(".")[0]
    responses = {
        str(status): {"description": said, "content": {kind: {}}}
        for status, said in statuses.items()
    }
    return {"operationId": f"get_{name}", "summary": summary, "responses": responses}
