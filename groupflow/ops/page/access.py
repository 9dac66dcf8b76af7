"""Which callers may look or act: by the called host, the token, the browser's site.

Through a browser strangers' sites can reach services inside. So the host's name must be known (a
stranger may point a name of his own here); there are no cookies (what a browser sends unasked
proves nothing); and actions come from our own page or no browser.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from time import monotonic
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.requests import Request

from groupflow.core.errors import ConfigError
from groupflow.ops.page.problems import RequestRefused
from groupflow.settings.model import Http
from groupflow.settings.tokens import Right, TokenHolder

log = structlog.get_logger("groupflow.http")

LOOK = 1.0  # seconds for which tokens that were read from files count
_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Access:
    daemon: str  # the daemon that answers
    may_read: bool  # whether the caller may look
    may_act: bool  # whether the caller may redrive, cancel, drop, pause and resume
    knows_token: bool  # whether the caller shows a token of this daemon
    has_tokens: bool  # whether there is any


class Authorizer:
    """Judges requests by the settings."""

    def __init__(self, http: Http) -> None:
        """Read the tokens.

        Raises:
            ConfigError: a token's file can't be used, or two names have one token.
        """
        self.tokens = Tokens(http)
        self._names = {*http.hosts, _host_of(http.listen)}
        self.is_open = http.is_open

    def knows_host(self, host: str) -> bool:
        """Whether a Host header is an address, localhost, or a name of ours."""
        name = _host_of(host)
        return name == "localhost" or name in self._names or _is_address(name)

    def check_reading(self, request: Request) -> None:
        """Check that a request may read.

        Raises:
            RequestRefused: it needs a token that lets its holder look.
        """
        if self.is_open:
            return
        if not self.tokens:
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                "This address is open to other machines and http.token is not set: set it, or set "
                'http.read = "open" to let everybody look.',
            )
        self._check(request, "look", "Looking")

    def check(self, request: Request, right: Right, or_right: Right | None = None) -> None:
        """Check that a request has a right; either one will do.

        Raises:
            RequestRefused: no token gives the right, or the token is missing, wrong, or another's.
        """
        holder = self.tokens.holder(request.headers)
        if or_right is not None and holder is not None and or_right in holder.rights:
            return
        if not self.tokens.grant(right):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                f"There is no token here that allows to {right}: set http.token (or token_file), "
                f'or one of http.tokens with the right "{right}".',
            )
        self._check(request, right, "This")

    def _check(self, request: Request, right: Right, what: str) -> None:
        holder = self.tokens.holder(request.headers)
        if holder is None:
            raise RequestRefused(
                HTTPStatus.UNAUTHORIZED,
                f"{what} needs a token, of http.token or of http.tokens with the right "
                f'"{right}"; there is none that is right.',
            )
        if right not in holder.rights:
            raise RequestRefused(
                HTTPStatus.FORBIDDEN, f'The token of {holder.name} hasn\'t the right "{right}".'
            )

    def check_origin(self, request: Request) -> None:
        """Refuse requests that another site makes a browser send.

        Raises:
            RequestRefused: it does not come from our own page.
        """
        headers = request.headers
        site = headers.get("sec-fetch-site", "same-origin")
        origin = headers.get("origin")
        host = headers.get("host", "").lower()
        is_ours = origin is None or _netloc_of(origin) == host
        if site not in ("same-origin", "none") or not is_ours:
            raise RequestRefused(HTTPStatus.FORBIDDEN, "This comes from another site's page.")


def _netloc_of(origin: str) -> str | None:
    """The host and port of an Origin header; ``None`` where it is no URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _host_of(netloc: str) -> str:
    """The host of a Host header or of an address to listen on, without its port."""
    netloc = netloc.strip().lower()
    if netloc.startswith("["):
        return netloc[1:].partition("]")[0]
    return netloc.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    """An address can't be pointed elsewhere, as a name can."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class Tokens:
    """All tokens. Files are read again and again: they may change."""

    def __init__(self, http: Http) -> None:
        """Read them.

        Raises:
            ConfigError: a file can't be used, or two names have one token.
        """
        self._http = http
        self._looked = monotonic()
        self._holders = http.read_holders()
        self._trouble = ""  # why the files can't be read now

    def __bool__(self) -> bool:
        """Whether there is one at all."""
        return bool(self._holders)

    def grant(self, right: Right) -> bool:
        """Whether any token gives a right."""
        return any(right in holder.rights for holder in self._holders.values())

    def holder(self, headers: Headers) -> TokenHolder | None:
        """The holder of the token that a caller shows; `None` without one, or with a wrong one."""
        given = _shown(headers)
        if not given:
            return None
        self._look()
        found = None
        for token, holder in self._holders.items():  # all: the time it takes tells nothing
            if hmac.compare_digest(given, token.encode()):
                found = holder
        return found

    def is_wrong(self, headers: Headers) -> bool:
        """Whether a caller shows a wrong token."""
        return bool(self and _shown(headers)) and self.holder(headers) is None

    def _look(self) -> None:
        """Read the files again; one that can't be used changes nothing."""
        now, trouble = monotonic(), ""
        if now - self._looked < LOOK:
            return
        self._looked = now
        try:
            holders = self._http.read_holders()
        except ConfigError as error:
            trouble = str(error)
            if trouble != self._trouble:
                log.error("http.tokens_kept", error=trouble, remedy="Those read before still hold.")
        else:
            if holders != self._holders:
                log.info(
                    "http.tokens_read", tokens=sorted({each.name for each in holders.values()})
                )
            self._holders = holders
        self._trouble = trouble


def _shown(headers: Headers) -> bytes:
    given = headers.get("authorization", "")
    if given[: len(_BEARER)].lower() != _BEARER:
        return b""
    return given[len(_BEARER) :].strip().encode()
