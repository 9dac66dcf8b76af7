"""Tokens, their holders and their rights."""

from __future__ import annotations

import hmac
from pathlib import Path
from time import monotonic

import structlog
from starlette.datastructures import Headers

from groupflow.core.errors import ConfigError
from groupflow.settings.model import Http
from groupflow.settings.tokens import Right, TokenHolder

log = structlog.get_logger("groupflow.http")

LOOK = 1.0  # seconds between two looks whether a file has changed
_BEARER = "bearer "


class Tokens:
    """All tokens. Files are read again when they change."""

    def __init__(self, http: Http) -> None:
        """Read them.

        Raises:
            ConfigError: a file can't be used, or two names have one token.
        """
        self._http = http
        self._looked = monotonic()
        self._seen = self._versions()
        self._holders = http.read_holders()

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
        """Read changed files again; one that can't be used changes nothing."""
        now = monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        seen = self._versions()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._holders = self._http.read_holders()
        except ConfigError as error:
            log.error("http.tokens_kept", error=str(error), remedy="Those read before still hold.")
        else:
            names = {holder.name for holder in self._holders.values()}
            log.info("http.tokens_read", tokens=sorted(names))

    def _versions(self) -> list[tuple[int, int, int] | None]:
        """Each file's inode, time and size."""
        tables = (self._http, *self._http.tokens.values())
        return [_version(table.token_file) for table in tables if table.token_file]


def _shown(headers: Headers) -> bytes:
    given = headers.get("authorization", "")
    if given[: len(_BEARER)].lower() != _BEARER:
        return b""
    return given[len(_BEARER) :].strip().encode()


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
