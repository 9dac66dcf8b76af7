"""The page's own files, read once and served from memory; a browser asks whether they changed."""

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


class _File:
    """One file as it is sent."""

    def __init__(self, name: str, content: bytes) -> None:
        self._content = content
        self._headers = {
            "etag": f'"{hashlib.sha256(content).hexdigest()[:24]}"',
            "content-type": _TYPES[name.rpartition(".")[2]],
            "cache-control": "no-cache",
        }

    def answer(self, request: Request) -> Response:
        """The file, or that the browser has it already."""
        if request.headers.get("if-none-match") == self._headers["etag"]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=self._headers)
        return Response(self._content, headers=self._headers)


def file_routes() -> list[Route]:
    """`/` and `/static/…`. Names are looked up among those that exist: no path is ever opened."""
    root = resources.files("groupflow.ops.page").joinpath("static")
    files: dict[str, _File] = {}
    for folder, prefix in ((root, ""), (root.joinpath("views"), "views/")):
        for entry in folder.iterdir():
            if entry.is_file() and entry.name.rpartition(".")[2] in _TYPES:
                files[prefix + entry.name] = _File(entry.name, entry.read_bytes())

    async def index(request: Request) -> Response:
        return files["index.html"].answer(request)

    async def static(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return found.answer(request)

    return [
        Route("/", index, methods=["GET"]),
        Route("/static/{name:path}", static, methods=["GET"]),
    ]
