"""The site: every route that the page's process serves, behind one middleware; and its server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from importlib import resources
from typing import Protocol, cast

import orjson
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from groupflow.ops.health import PATHS
from groupflow.ops.listening import listening
from groupflow.ops.page.access import Access, Authorizer
from groupflow.ops.page.acting import Acting
from groupflow.ops.page.connections import EVENTS, HttpConnections
from groupflow.ops.page.describing import describe
from groupflow.ops.page.endpoints import Caller, Endpoint, endpoints_of, routes_of
from groupflow.ops.page.facts import PageContext
from groupflow.ops.page.live import Live
from groupflow.ops.page.middleware import Middleware
from groupflow.ops.page.problems import problem_response
from groupflow.ops.page.publishing import Publishing
from groupflow.ops.page.reading import Reading
from groupflow.ops.page.throttle import Reads
from groupflow.ops.snapshots import Snapshot
from groupflow.settings.model import Http
from groupflow.settings.transport import is_loopback

log = structlog.get_logger("groupflow.http")

BACKLOG = 1024  # connections that wait to be accepted: a pool's workers may come all at once
GOODBYE = 1  # seconds for open answers at the end
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_SCRIPTS = ("main.js", "theme.js")  # that `index.html` itself runs
_DETAILS: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "There is no such address here; /api/openapi.json lists what is.",
    HTTPStatus.METHOD_NOT_ALLOWED: "Not by this method; /api/openapi.json says by which.",
}
_FOR_GOOD = "public, max-age=31536000, immutable"


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
        self._authorizer = authorizer = Authorizer(context.facts.settings.http)
        reading = Reading(context)
        self._publishing = Publishing(context)
        self._extensions = [make(context) for make in extensions]
        self._live = Live(authorizer, reading.overview)
        parts = [self, reading, Acting(context), self._publishing, *self._extensions]
        self._endpoints = [each for part in parts for each in endpoints_of(part)]
        self._description = Snapshot[bytes](self._described, math.inf)
        routes = [
            *(Route(path, self._health, methods=["GET"]) for path in PATHS),
            *routes_of(self._endpoints, authorizer, Reads()),
            Route(EVENTS, self._live.serve, methods=["GET"]),
            Route("/api/openapi.json", self._describe, methods=["GET"]),
            *_file_routes(),
        ]
        # Debug is off and every answer is ours: a traceback is never shown.
        inner = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
        self.app: ASGIApp = Middleware(inner, authorizer)

    @Endpoint("GET", "/access", "What the caller may do here", is_public=True)
    async def _access(self, caller: Caller) -> Access:
        authorizer = self._authorizer
        return Access(
            self._context.facts.daemon,
            authorizer.is_open or caller.may("look"),
            caller.may("act"),
            caller.holder is not None,
            bool(authorizer.tokens),
        )

    async def _health(self, request: Request) -> Response:
        """One of `PATHS`: open to every caller at the address."""
        found = await self._context.health.of(request.url.path)
        return Response(found.body, found.status, headers={"content-type": found.type})

    async def _describe(self, _: Request) -> Response:
        return Response(await self._description.get(), media_type="application/json")

    async def _described(self) -> bytes:
        # In a thread: it takes a tenth of a second, in which others are answered.
        return orjson.dumps(await asyncio.to_thread(describe, self._endpoints))

    async def hurry(self) -> None:
        """End the streams, and answer callers that wait for something."""
        self._live.streams.end_all()
        for extension in self._extensions:
            await extension.hurry()

    async def close(self) -> None:
        """Close what it has opened."""
        await self._publishing.close()
        for extension in self._extensions:
            await extension.close()


async def _http_error(_: Request, error: Exception) -> Response:
    found = cast(HTTPException, error)
    detail = _DETAILS.get(found.status_code, str(error))
    return problem_response(found.status_code, detail, dict(found.headers or {}))


def _file_routes() -> list[Route]:
    """`/` and `/static/…`, read once and served from memory: no path is ever opened.

    Their addresses have a digest of them all, so a browser keeps them for good, and a new version
    of groupflow has new addresses. The modules import each other by relative names, so only the
    addresses in `index.html` are rewritten; there each module is named, so that a browser asks for
    all of them at once.
    """
    contents = _contents()
    digest = hashlib.sha256(b"".join(contents[name] for name in sorted(contents))).hexdigest()[:16]
    here = f"/static/{digest}/"
    start = contents.pop("index.html").replace(b"  </head>", _links(contents) + b"  </head>")
    start = start.replace(b"/static/", here.encode())
    files = {here + name: (content, _FOR_GOOD) for name, content in contents.items()}
    files["/"] = start, "no-cache"

    async def serve(request: Request) -> Response:
        path = request.url.path
        content, cache = files[path]
        kind = _TYPES[path.rpartition(".")[2] if path != "/" else "html"]
        return Response(content, headers={"content-type": kind, "cache-control": cache})

    return [Route(path, serve, methods=["GET"]) for path in files]


def _links(names: Iterable[str]) -> bytes:
    modules = sorted(name for name in names if name.endswith(".js") and name not in _SCRIPTS)
    link = '    <link rel="modulepreload" href="/static/{}">\n'
    return "".join(map(link.format, modules)).encode()


def _contents() -> dict[str, bytes]:
    root = resources.files("groupflow.ops.page").joinpath("static")
    found: dict[str, bytes] = {}
    for folder, prefix in ((root, ""), (root.joinpath("views"), "views/")):
        for entry in folder.iterdir():
            if entry.is_file() and entry.name.rpartition(".")[2] in _TYPES:
                found[prefix + entry.name] = entry.read_bytes()
    return found


class _Uvicorn(uvicorn.Server):
    """uvicorn that leaves the process's signals to their owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve_page(
    context: PageContext, extensions: Sequence[Callable[[PageContext], Extension]] = ()
) -> AsyncIterator[None]:
    """Serve a page, and the extensions of its API, until the block ends."""
    http = context.facts.settings.http

    async def serve(sock: socket.socket, end: asyncio.Event) -> None:
        _announce(http, sock.getsockname()[1])
        await _serve(Site(context, extensions), sock, end)

    async with listening("http.listen", http.listen, serve, GOODBYE + 1):
        yield


async def _serve(site: Site, sock: socket.socket, end: asyncio.Event) -> None:
    """Answer on a socket until told to end; then open answers may finish, streams first."""
    config = uvicorn.Config(
        site.app,
        http=HttpConnections().protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GOODBYE,
    )
    server = _Uvicorn(config)

    async def stop() -> None:
        await end.wait()
        await site.hurry()
        server.should_exit = True

    stopping = asyncio.create_task(stop())
    try:
        await server.serve(sockets=[sock])
    finally:
        stopping.cancel()
        await site.close()


def _announce(http: Http, port: int) -> None:
    host = http.listen.rpartition(":")[0]
    log.info("http.listening", url=f"http://{host}:{port}/")
    if not is_loopback(http.listen):
        what = "anybody who reaches it may look" if http.is_open else "token asked"
        log.warning(
            "http.open_to_others",
            listen=http.listen,
            found=f"plain HTTP beyond this machine; {what}",
            remedy="Put a proxy with TLS in front, or listen on 127.0.0.1.",
        )
