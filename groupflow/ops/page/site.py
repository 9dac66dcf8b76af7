"""The site: every route that the page's process serves, behind one guard."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Protocol

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from groupflow.ops.page.access import Access, Gate
from groupflow.ops.page.acting import Acting
from groupflow.ops.page.describing import describe
from groupflow.ops.page.endpoints import Caller, Endpoint, endpoints_of, routes_of
from groupflow.ops.page.facts import PageContext
from groupflow.ops.page.files import file_routes
from groupflow.ops.page.guard import Guard
from groupflow.ops.page.health import health_routes
from groupflow.ops.page.live import Live
from groupflow.ops.page.problems import problem_response
from groupflow.ops.page.publishing import Publishing
from groupflow.ops.page.reading import Reading
from groupflow.ops.page.turns import Turns
from groupflow.ops.snapshots import Snapshot


class Extension(Protocol):
    """An object with endpoints among its methods, as far as the page knows it."""

    async def hurry(self) -> None:
        """Answer callers that wait: the server is about to end."""

    async def close(self) -> None: ...


class Site:
    """One daemon's page, API and health as an ASGI application, its `app`."""

    def __init__(
        self, context: PageContext, extensions: Sequence[Callable[[PageContext], Extension]] = ()
    ) -> None:
        """Build all routes.

        Raises:
            ConfigError: a token's file can't be used.
        """
        self._context = context
        self._gate = gate = Gate(context.facts.settings.http)
        reading = Reading(context)
        self._publishing = Publishing(context)
        self._extensions = [make(context) for make in extensions]
        self.live = Live(gate, reading.overview)  # streams, which must be told when it closes
        parts = [self, reading, Acting(context), self._publishing, *self._extensions]
        self._endpoints = [each for part in parts for each in endpoints_of(part)]
        self._description = Snapshot[bytes](self._described, math.inf)
        routes = [
            *health_routes(context.health),
            *routes_of(self._endpoints, gate, Turns()),
            self.live.route(),
            Route("/api/openapi.json", self._describe, methods=["GET"]),
            *file_routes(),
        ]
        # Debug is off and every answer is ours: a traceback is never shown.
        inner = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
        self.app: ASGIApp = Guard(inner, gate)

    @Endpoint("GET", "/access", "What the caller may do here", is_public=True)
    async def _access(self, caller: Caller) -> Access:
        gate = self._gate
        return Access(
            self._context.facts.daemon,
            gate.is_open or caller.may("look"),
            caller.may("act"),
            not gate.is_open,
            gate.has("act"),
        )

    async def _describe(self, _: Request) -> Response:
        return Response(await self._description.get(), media_type="application/json")

    async def _described(self) -> bytes:
        # In a thread: it takes a tenth of a second, in which others are answered.
        return orjson.dumps(await asyncio.to_thread(describe, self._endpoints))

    async def hurry(self) -> None:
        """Answer callers that wait for something."""
        for extension in self._extensions:
            await extension.hurry()

    async def close(self) -> None:
        """Close what it has opened."""
        await self._publishing.close()
        for extension in self._extensions:
            await extension.close()


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    details = {
        HTTPStatus.NOT_FOUND: "There is no such address here; /api/openapi.json lists what is.",
        HTTPStatus.METHOD_NOT_ALLOWED: "Not by this method; /api/openapi.json says by which.",
    }
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    detail = details.get(HTTPStatus(status), str(error))
    return problem_response(status, detail, headers)
