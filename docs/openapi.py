"""Writes groupflow/ops/page/openapi.json from the API's endpoints: `python docs/openapi.py`.

The document is the API's contract, and what `/api/openapi.json` answers. A test compares the two.
"""

from __future__ import annotations

from importlib.metadata import version
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_args

import orjson
from fastapi import FastAPI, Query
from pydantic import TypeAdapter

from groupflow.operate.whole.namespace import Namespace
from groupflow.ops.page.endpoints import Endpoint
from groupflow.ops.page.problems import ProblemDetails
from groupflow.ops.page.publishing import Publishing
from groupflow.ops.page.reading import Reading
from groupflow.ops.page.site import endpoints_of

FILE = Path(__file__).parents[1] / "groupflow" / "ops" / "page" / "openapi.json"

PROBLEMS = {
    400: "The input can't be used",
    401: "The token is missing or wrong",
    403: "This daemon does not allow it, or another site's page asked",
    404: "It is not there",
    411: "The body comes in chunks, without a Content-Length",
    413: "The body is too long",
    415: "The body is not declared as JSON",
    422: "It would be a dead letter from the start",
    429: "Too many wrong tokens come just now",
    503: "Redis does not answer",
}
ALWAYS = {400, 401, 403, 429, 503}
OF_A_BODY = {411, 413, 415}
OTHERS = {  # what is no question to the store with an answer in JSON
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


def document() -> dict[str, Any]:
    """The whole of it."""
    api = FastAPI(
        title="groupflow",
        version=version("groupflow"),
        summary="What a groupflow cluster does, and the few things that can be done to it.",
    )
    nowhere: Any = SimpleNamespace(namespace=Namespace([]), redrive=None)
    for endpoint in endpoints_of(nowhere, nowhere, Reading(nowhere), Publishing(nowhere)):
        _add(api, endpoint)
    found = api.openapi()
    for operations in found["paths"].values():
        for operation in operations.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]  # FastAPI's own answer to what can't be used
    schemas = found["components"]["schemas"]
    del schemas["HTTPValidationError"], schemas["ValidationError"]
    schemas["ProblemDetails"] = TypeAdapter(ProblemDetails).json_schema()
    for schema in schemas.values():  # a docstring's first paragraph is enough
        if "description" in schema:
            schema["description"] = schema["description"].partition("\n\n")[0]
    found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["paths"] |= {path: {"get": _other(path, *facts)} for path, facts in OTHERS.items()}
    return found


def _add(api: FastAPI, endpoint: Endpoint) -> None:
    async def serve(asked: Any) -> None: ...

    takes = endpoint.asks
    answers = signature(endpoint.handle, eval_str=True).return_annotation
    if endpoint.may_miss:
        (answers,) = set(get_args(answers)) - {type(None)}  # none of it is a 404
    serve.__annotations__["asked"] = (
        Annotated[takes, Query()] if endpoint.method == "GET" else takes
    )
    statuses = ALWAYS | (OF_A_BODY if endpoint.method == "POST" else set())
    statuses |= {404} if endpoint.may_miss else set()
    statuses |= {422} if endpoint.may_be_unroutable else set()
    api.add_api_route(
        f"/api{endpoint.path}",
        serve,
        methods=[endpoint.method],
        summary=endpoint.summary,
        operation_id=f"{endpoint.method}{endpoint.path}".lower().replace("/", "_"),
        response_model=answers,
        response_description="As asked",
        responses={status: _problem(status) for status in sorted(statuses)},
        openapi_extra={"security": [{"token": []}] if endpoint.right else [{}, {"token": []}]},
    )


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    return {
        "description": PROBLEMS[status],
        "content": {"application/problem+json": {"schema": schema}},
    }


def _other(path: str, summary: str, kind: str, statuses: dict[int, str]) -> dict[str, Any]:
    name = path.rpartition("/")[2].partition(".")[0]
    responses = {
        str(status): {"description": said, "content": {kind: {}}}
        for status, said in statuses.items()
    }
    return {"operationId": f"get_{name}", "summary": summary, "responses": responses}


if __name__ == "__main__":
    FILE.write_bytes(orjson.dumps(document(), option=orjson.OPT_INDENT_2) + b"\n")
