"""Who may look, who may act: the host that was called, the token, the site that a browser is on.

A page in a browser is a way for strangers' sites to reach services inside. So the host's name must
be known (a name of the stranger's own may be pointed here), there are no cookies (nothing that
a browser sends unasked proves anything), and what acts comes from our own page or no browser.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from groupflow.ops.page.problems import Refused
from groupflow.settings.model import Http

_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Access:
    daemon: str  # the daemon that answers
    may_read: bool  # whether the caller may look
    may_act: bool  # whether the caller may redrive, drop, pause and resume
    needs_token: bool  # whether looking needs a token
    has_actions: bool  # whether this daemon has a token, without which nobody may act


class Gate:
    """Judges requests by the settings."""

    def __init__(self, http: Http) -> None:
        """Read the token.

        Raises:
            ConfigError: its file can't be used.
        """
        self._token = http.read_token().encode()
        self._names = {*http.hosts, _host_of(http.listen)}
        self.is_open = http.is_open

    @property
    def has_token(self) -> bool:
        """Whether anybody may act at all."""
        return bool(self._token)

    def knows_host(self, host: str) -> bool:
        """Whether a Host header is an address, localhost, or a name of ours."""
        name = _host_of(host)
        return name == "localhost" or name in self._names or _is_address(name)

    def shows_token(self, headers: Headers) -> bool:
        given = headers.get("authorization", "")
        if not self._token or given[: len(_BEARER)].lower() != _BEARER:
            return False
        return hmac.compare_digest(given[len(_BEARER) :].strip().encode(), self._token)

    def shows_wrong_token(self, headers: Headers) -> bool:
        """Whether a request carries what is meant as the token, and isn't it."""
        given = headers.get("authorization", "")
        meant = given[: len(_BEARER)].lower() == _BEARER and bool(given[len(_BEARER) :].strip())
        return bool(self._token) and meant and not self.shows_token(headers)

    def check_reading(self, request: Request) -> None:
        """Let a look through.

        Raises:
            Refused: it needs the token.
        """
        if self.is_open or self.shows_token(request.headers):
            return
        if not self.has_token:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "This address is open to other machines and http.token is not set: set it, or set "
                'http.read = "open" to let everybody look.',
            )
        raise Refused(HTTPStatus.UNAUTHORIZED, "Looking needs the token of http.token here.")

    def check_acting(self, request: Request) -> None:
        """Let an action through.

        Raises:
            Refused: there are no actions here, or the token is missing or wrong.
        """
        if not self.has_token:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "This daemon only shows: set http.token (or token_file) to allow actions.",
            )
        if not self.shows_token(request.headers):
            raise Refused(
                HTTPStatus.UNAUTHORIZED, "Actions need the token of http.token; this is not it."
            )

    def check_origin(self, request: Request) -> None:
        """Refuse what another site makes a browser send.

        Raises:
            Refused: it does not come from our own page.
        """
        headers = request.headers
        site = headers.get("sec-fetch-site", "same-origin")
        origin = headers.get("origin")
        host = headers.get("host", "").lower()
        is_ours = origin is None or _netloc_of(origin) == host
        if site not in ("same-origin", "none") or not is_ours:
            raise Refused(HTTPStatus.FORBIDDEN, "This comes from another site's page.")


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
