"""Writes groupflow/ops/page/openapi.json from the API's endpoints: `python docs/openapi.py`.

The document is the API's contract, and what `/api/openapi.json` answers. A test compares the two.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from inspect import Parameter, Signature, signature
from pathlib import Path as File
from types import SimpleNamespace
from typing import Annotated, Any, get_args

import orjson
from fastapi import FastAPI, Path, Query
from pydantic import TypeAdapter

from groupflow.operate.whole.namespace import Namespace
from groupflow.ops.page.endpoints import Endpoint
from groupflow.ops.page.problems import ProblemDetails
from groupflow.ops.page.publishing import Publishing
from groupflow.ops.page.reading import Reading
from groupflow.ops.page.site import endpoints_of
from groupflow.pools.calls import Pools
from groupflow.pools.filling import ABOUT, PATH, SUMMARY
from groupflow.pools.shapes import Filled
from groupflow.settings.model import Settings

FILE = File(__file__).parents[1] / "groupflow" / "ops" / "page" / "openapi.json"

PROBLEMS = {
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
    facts = SimpleNamespace(settings=Settings())
    nowhere: Any = SimpleNamespace(namespace=Namespace([]), redrive=None, facts=facts)
    ours = endpoints_of(nowhere, nowhere, Reading(nowhere), Publishing(nowhere))
    for endpoint in [*ours, *Pools(nowhere).endpoints()]:
        _add(api, endpoint)
    _add_list(api)
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
    async def serve(asked: Any, **names: str) -> None: ...

    takes = endpoint.asks
    answers = signature(endpoint.handle, eval_str=True).return_annotation
    if endpoint.may_miss:
        (answers,) = set(get_args(answers)) - {type(None)}  # none of it is a 404
    is_query = endpoint.method in ("GET", "DELETE")
    kind = Parameter.KEYWORD_ONLY
    parameters = [
        Parameter(name, kind, annotation=Annotated[str, Path()])
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    if takes.model_fields:
        annotation: Any = Annotated[takes, Query()] if is_query else takes
        parameters.append(Parameter("asked", kind, annotation=annotation))
    serve.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    statuses = ALWAYS | (OF_A_BODY if endpoint.method == "POST" else set())
    statuses |= {404} if endpoint.may_miss or "{" in endpoint.path else set()
    statuses |= {409} if endpoint.may_be_ambiguous else set()
    statuses |= {422} if endpoint.may_be_unfit else set()
    api.add_api_route(
        f"/api{endpoint.path}",
        serve,
        methods=[endpoint.method],
        summary=endpoint.summary,
        operation_id=_operation(endpoint.method, endpoint.path),
        response_model=answers,
        response_description="As asked",
        responses={status: _problem(status) for status in sorted(statuses)},
        openapi_extra={"security": [{"token": []}] if endpoint.right else [{}, {"token": []}]},
    )


def _operation(method: str, path: str) -> str:
    return re.sub(r"[{}]", "", f"{method}{path}".lower().replace("/", "_"))


def _add_list(api: FastAPI) -> None:
    """The one endpoint that takes a body of any length."""

    async def serve(pool: str) -> None: ...

    statuses = ALWAYS | {404, 408, 411, 413, 422}
    schema = {"type": "string", "format": "binary"}
    body = {"required": True, "content": {"application/x-ndjson": {"schema": schema}}}
    api.add_api_route(
        f"/api{PATH}",
        serve,
        methods=["PUT"],
        summary=SUMMARY,
        description=ABOUT,
        operation_id=_operation("PUT", PATH),
        response_model=Filled,
        response_description="As asked",
        responses={status: _problem(status) for status in sorted(statuses)},
        openapi_extra={"security": [{"token": []}], "requestBody": body},
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
