"""The page's own files, read once and served from memory.

Their addresses have a digest of them all, so a browser keeps them for good, and a new version of
groupflow has new addresses. The modules import each other by relative names, so only the addresses
in `index.html` are rewritten.
"""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from importlib import resources

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FOR_GOOD = "public, max-age=31536000, immutable"


class _File:
    """One file as it is sent."""

    def __init__(self, name: str, content: bytes, cache: str) -> None:
        self._content = content
        self._headers = {"content-type": _TYPES[name.rpartition(".")[2]], "cache-control": cache}

    def answer(self) -> Response:
        return Response(self._content, headers=self._headers)


def file_routes() -> list[Route]:
    """`/` and `/static/…`. Names are looked up among those that exist: no path is ever opened."""
    contents = _contents()
    digest = hashlib.sha256(b"".join(contents[name] for name in sorted(contents))).hexdigest()[:16]
    here = f"/static/{digest}/"
    start = contents.pop("index.html").replace(b"/static/", here.encode())
    index = _File("index.html", start, "no-cache")
    files = {here + name: _File(name, content, _FOR_GOOD) for name, content in contents.items()}

    async def serve_index(_: Request) -> Response:
        return index.answer()

    async def serve_file(request: Request) -> Response:
        found = files.get(request.url.path)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return found.answer()

    return [
        Route("/", serve_index, methods=["GET"]),
        Route("/static/{name:path}", serve_file, methods=["GET"]),
    ]


def _contents() -> dict[str, bytes]:
    root = resources.files("groupflow.ops.page").joinpath("static")
    found: dict[str, bytes] = {}
    for folder, prefix in ((root, ""), (root.joinpath("views"), "views/")):
        for entry in folder.iterdir():
            if entry.is_file() and entry.name.rpartition(".")[2] in _TYPES:
                found[prefix + entry.name] = entry.read_bytes()
    return found
