"""Health, for probes: is the process alive, has it started, is it ready for work."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from http import HTTPStatus

import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from groupflow.core.checkup import Check
from groupflow.core.errors import GroupflowError
from groupflow.ops.metrics import Metrics
from groupflow.ops.page.parts import Parts

_PATIENCE = 2.0  # seconds for the store's answer: below any probe's own limit


def health_routes(parts: Parts) -> list[Route]:
    """`/livez`, `/startupz`, `/readyz` and `/metrics`: open to all who reach the address."""

    async def livez(_: Request) -> Response:
        """The loop runs, or this would not be answered; nothing else is asked."""
        return PlainTextResponse("ok\n")

    async def startupz(_: Request) -> Response:
        if parts.started.is_set():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("not started yet\n", HTTPStatus.SERVICE_UNAVAILABLE)

    async def readyz(_: Request) -> Response:
        checks = [await check_store(parts), *parts.checks()]
        is_ready = all(check.verdict != "fail" for check in checks)
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        found = {"ready": is_ready, "checks": [asdict(check) for check in checks]}
        return Response(orjson.dumps(found), status, media_type="application/json")

    async def metrics(_: Request) -> Response:
        return Response(await parts.metrics(), headers={"content-type": Metrics.content_type})

    handlers = {"/livez": livez, "/startupz": startupz, "/readyz": readyz, "/metrics": metrics}
    return [Route(path, handler, methods=["GET"]) for path, handler in handlers.items()]


async def check_store(parts: Parts) -> Check:
    """Does Redis answer."""
    name = "redis.answers"
    try:
        async with asyncio.timeout(_PATIENCE):
            await parts.client.ping()
    except (GroupflowError, TimeoutError) as error:
        found = str(error) or f"no answer within {_PATIENCE:g} s"
        return Check(name, "fail", found, "Is it running? Tasks wait, none is lost.")
    return Check(name, "ok", parts.client.address)
