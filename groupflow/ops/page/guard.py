"""Around each request: checks the host, delays wrong tokens, adds headers that bind browsers."""

from __future__ import annotations

from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groupflow.ops.page.access import Gate
from groupflow.ops.page.patience import LONGEST_WAIT, Patience
from groupflow.ops.page.problems import problem_response

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Middleware: refuses hosts that are not ours, delays wrong tokens, adds the headers."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate
        self._patience = Patience()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        # The server closes the connection behind an answer to a request whose body it didn't read
        # (see `connection`). The answer says so, or the client's next request would be lost.
        is_whole = Headers(scope=scope).get("content-length", "0") == "0"

        async def receive_noted() -> Message:
            nonlocal is_whole
            message = await receive()
            is_whole = is_whole or not message.get("more_body", False)
            return message

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if not is_whole:
                    headers["connection"] = "close"
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._gate.knows_host(host):
            refusal = problem_response(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This daemon does not know itself by the name that was called: add it to "
                "http.hosts if it is right.",
            )
            await refusal(scope, receive_noted, send_guarded)
            return
        if "transfer-encoding" in headers:
            # Even a small chunk costs: see `connection`.
            refusal = problem_response(
                HTTPStatus.LENGTH_REQUIRED, "Send the body with its Content-Length, not in chunks."
            )
            await refusal(scope, receive_noted, send_guarded)
            return
        peer = scope["client"][0] if scope.get("client") else "unknown"
        if not await self._may_pass(headers, peer):
            refusal = problem_response(
                HTTPStatus.TOO_MANY_REQUESTS,
                "Too many wrong tokens come from there just now: this one was not looked at.",
                {"retry-after": f"{LONGEST_WAIT:g}"},
            )
            await refusal(scope, receive_noted, send_guarded)
            return
        await self._app(scope, receive_noted, send_guarded)

    async def _may_pass(self, headers: Headers, peer: str) -> bool:
        """Whether to serve a request; one with a wrong token waits first."""
        is_right = self._gate.holder(headers) is not None
        is_wrong = not is_right and self._gate.shows_wrong_token(headers)
        if not (is_right or is_wrong):
            return True
        if not self._patience.is_read(peer):
            return False
        if is_right:
            self._patience.right(peer)
            return True
        return await self._patience.wrong(peer)
