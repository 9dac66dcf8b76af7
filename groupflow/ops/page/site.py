"""The site: every route that the page's process serves, behind one guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from importlib import resources
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from groupflow.ops.page.access import Access, Gate
from groupflow.ops.page.acting import Acting
from groupflow.ops.page.context import PageContext
from groupflow.ops.page.endpoints import Caller, Endpoint, routes_of
from groupflow.ops.page.files import file_routes
from groupflow.ops.page.guard import Guard
from groupflow.ops.page.health import health_routes
from groupflow.ops.page.live import Live
from groupflow.ops.page.problems import problem_response
from groupflow.ops.page.publishing import Publishing
from groupflow.ops.page.reading import Reading
from groupflow.ops.page.shapes import Nothing
from groupflow.ops.page.turns import Turns


class Extension(Protocol):
    """An extension of the API, as far as the page knows it."""

    def endpoints(self) -> list[Endpoint]: ...

    def routes(self, gate: Gate) -> list[Route]:
        """Routes that don't answer a question in JSON."""

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
        gate = Gate(context.facts.settings.http)
        turns = Turns()
        reading = Reading(context)
        self._publishing = Publishing(context)
        self._extensions = [make(context) for make in extensions]
        self.live = Live(gate, reading.overview)  # streams, which must be told when it closes
        description = resources.files(__package__).joinpath("openapi.json").read_bytes()
        as_json = partial(Response, description, media_type="application/json")
        routes = [
            *health_routes(context.health),
            *routes_of(
                [
                    *endpoints_of(context, gate, reading, self._publishing),
                    *(each for extension in self._extensions for each in extension.endpoints()),
                ],
                gate,
                turns,
            ),
            *(route for extension in self._extensions for route in extension.routes(gate)),
            self.live.route(),
            Route("/api/openapi.json", lambda _: as_json(), methods=["GET"]),
            *file_routes(),
        ]
        # Debug is off and every answer is ours: a traceback is never shown.
        inner = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
        self.app: ASGIApp = Guard(inner, gate)

    async def hurry(self) -> None:
        """Answer callers that wait for something."""
        for extension in self._extensions:
            await extension.hurry()

    async def close(self) -> None:
        """Close what it has opened."""
        await self._publishing.close()
        for extension in self._extensions:
            await extension.close()


def endpoints_of(
    context: PageContext, gate: Gate, reading: Reading, publishing: Publishing
) -> list[Endpoint]:
    """All endpoints that answer in JSON."""

    async def access(_: Nothing, caller: Caller) -> Access:
        return Access(
            context.facts.daemon,
            gate.is_open or caller.may("look"),
            caller.may("act"),
            not gate.is_open,
            gate.has("act"),
        )

    about = Endpoint("GET", "/access", "What the caller may do here", access, is_public=True)
    return [about, *reading.endpoints(), *Acting(context).endpoints(), *publishing.endpoints()]


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    details = {
        HTTPStatus.NOT_FOUND: "There is no such address here; /api/openapi.json lists what is.",
        HTTPStatus.METHOD_NOT_ALLOWED: "Not by this method; /api/openapi.json says by which.",
    }
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    detail = details.get(HTTPStatus(status), str(error))
    return problem_response(status, detail, headers)
