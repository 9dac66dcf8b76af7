"""Health and metrics at the page's address: the daemon's answers, handed on."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from groupflow.ops.health.answers import PATHS, TEXT, Health, HealthAnswer
from groupflow.ops.page.channel import Channel
from groupflow.ops.snapshots import Snapshot

_ANSWER_WITHIN = 4.0  # seconds for the daemon's answer: below a probe's limit of 5
# Seconds for which an answer is reused: of a flood of probes the daemon gets a few a second.
_AGE = {"/livez": 0.25, "/startupz": 0.25, "/readyz": 0.25, "/metrics": 1.0}


def health_routes(health: Health) -> list[Route]:
    """`/livez`, `/startupz`, `/readyz` and `/metrics`: open to every caller at the address."""

    async def serve(request: Request) -> Response:
        found = await health.of(request.url.path)
        return Response(found.body, found.status, headers={"content-type": found.type})

    return [Route(path, serve, methods=["GET"]) for path in PATHS]


class HandedOn:
    """The health of the daemon at the other end of the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._asked: dict[str, asyncio.Future[HealthAnswer]] = {}  # by path, one of each at a time
        self._latest = {
            path: Snapshot[HealthAnswer](partial(self._ask, path), age)
            for path, age in _AGE.items()
        }

    async def of(self, path: str) -> HealthAnswer:
        """The daemon's answer; 503 where its loop is blocked."""
        return await self._latest[path].get()

    def heard(self, path: str, answer: HealthAnswer) -> None:
        waiting = self._asked.get(path)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def _ask(self, path: str) -> HealthAnswer:
        answer: asyncio.Future[HealthAnswer] = asyncio.get_running_loop().create_future()
        self._asked[path] = answer
        self._channel.send({"ask": path})
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await answer
        except TimeoutError:
            found = f"the daemon has not answered for {_ANSWER_WITHIN:g} s: its loop stands\n"
            return HealthAnswer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, found.encode())
