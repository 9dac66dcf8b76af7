"""Around each request: checks host and token, bounds its cost, adds headers that bind browsers.

All of it happens before a body is read: a body comes only once the endpoint asks for it, within the
bytes that its caller may have in flight and within a time, and with its JSON values counted.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groupflow.core.json_text import has_over
from groupflow.ops.health import PATHS
from groupflow.ops.page.access import Authorizer
from groupflow.ops.page.problems import RequestRefused, refused_response
from groupflow.ops.page.throttle import BODIES, DELAY, BodyQuota, FairQueue, WrongTokens

MOST_VALUES = 10_000  # JSON values in a body
READ = 20.0  # seconds for a body
_SMALL = 64 * 1024  # bytes of which the values are counted at once

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Middleware:
    """The only middleware: every request and answer passes it."""

    def __init__(self, app: ASGIApp, authorizer: Authorizer) -> None:
        self._app = app
        self._authorizer = authorizer
        self._wrong_tokens = WrongTokens()
        self._queue = FairQueue()
        # by the token's name; "" for no token
        self._rooms: dict[str, BodyQuota] = defaultdict(BodyQuota)
        self._counting = ThreadPoolExecutor(1, "count-values")  # counts a large body in 50 ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, receive, send)
        try:
            caller = await self._admitted(exchange)
            async with AsyncExitStack() as held:
                received = partial(self._received, exchange, caller, held)
                await self._app(scope, received, exchange.send)
        except RequestRefused as refusal:
            await refused_response(refusal)(scope, receive, exchange.send)

    async def _admitted(self, exchange: _Exchange) -> str:
        """Let a request in, when it is its turn; returns the name of the caller's token, or "".

        Raises:
            RequestRefused: it isn't served.
        """
        headers, scope = exchange.headers, exchange.scope
        if not self._authorizer.knows_host(headers.get("host", "")):
            raise RequestRefused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This daemon does not know itself by the name that was called: add it to "
                "http.hosts if it is right.",
            )
        if "transfer-encoding" in headers:
            # Even a small chunk costs: see `connections`.
            raise RequestRefused(
                HTTPStatus.LENGTH_REQUIRED, "Send the body with its Content-Length, not in chunks."
            )
        holder = self._authorizer.tokens.holder(headers)
        peer = scope["client"][0] if scope.get("client") else "unknown"
        if not await self._may_pass(headers, peer, is_right=holder is not None):
            raise RequestRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "Too many wrong tokens come from there just now: this one was not looked at.",
                retry_after=DELAY,
            )
        caller = holder.name if holder else ""
        if scope["path"] not in PATHS:  # health is answered at once
            await self._queue.enter(caller)
        return caller

    async def _may_pass(self, headers: Headers, peer: str, *, is_right: bool) -> bool:
        """Whether to serve a request; one with a wrong token waits first."""
        if not is_right and not self._authorizer.tokens.is_wrong(headers):
            return True
        if not self._wrong_tokens.is_read(peer):
            return False
        if is_right:
            self._wrong_tokens.right(peer)
            return True
        return await self._wrong_tokens.wrong(peer)

    async def _received(self, exchange: _Exchange, caller: str, held: AsyncExitStack) -> Message:
        """The whole body in one message, within its limits; or what comes behind it.

        Raises:
            RequestRefused: it is too large, too slow, or has too many values.
        """
        # A PUT's list is bounded line by line; no endpoint reads a body of other methods.
        if exchange.is_whole or exchange.scope["method"] != "POST":
            return await exchange.receive()
        if exchange.size > BODIES:
            detail = f"The body is over {BODIES} bytes."
            raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        await held.enter_async_context(self._rooms[caller].of(exchange.size))
        body = bytearray()
        try:
            async with asyncio.timeout(READ):
                while not exchange.is_whole:
                    message = await exchange.receive()
                    if message["type"] == "http.disconnect":
                        return message
                    body += message["body"]
        except TimeoutError:
            detail = f"{len(body)} of {exchange.size} bytes came in {READ:g} s: send them faster."
            raise RequestRefused(HTTPStatus.REQUEST_TIMEOUT, detail) from None
        if await self._has_too_many_values(packed := bytes(body)):
            # A list is too long; an object with so many values fits no endpoint.
            is_list = packed.lstrip()[:1] == b"["
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_list else HTTPStatus.BAD_REQUEST
            raise RequestRefused(status, f"The body has over {MOST_VALUES} JSON values.")
        return {"type": "http.request", "body": packed, "more_body": False}

    async def _has_too_many_values(self, body: bytes) -> bool:
        if len(body) <= _SMALL:
            return has_over(body, MOST_VALUES)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._counting, has_over, body, MOST_VALUES)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.headers = Headers(scope=scope)
        self.size = int(self.headers.get("content-length", "0"))  # bytes of the body
        self.is_whole = self.size == 0  # whether all of the body was read
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        message = await self._receive()
        self.is_whole = self.is_whole or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with our headers."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if not self.is_whole:
                # The server closes the connection, as it didn't read the body (see `connections`):
                # the client's next request would be lost.
                headers["connection"] = "close"
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await self._send(message)
