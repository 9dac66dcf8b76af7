"""Hiding passwords: what may be shown of a URL, or of a text that has one somewhere in it."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "***"

_QUERY_SECRET = re.compile(r"(?i)([?&](?:pass|passwd|password|secret|token|api_?key)=)[^&#\s\"']+")
_TOKEN_END = re.compile(r"[\s\"'<>`]")


def mask_url(url: str) -> str:
    """The URL with its password hidden.

    What has no scheme is hidden whole: it may be a bare password that was put in the wrong place.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return HIDDEN if url else ""
    return f"{scheme}://{_mask_user_info(rest)}"


def mask_secrets(text: str) -> str:
    """The text with the passwords of all URLs in it hidden; linear in its length."""
    if "://" not in text:
        return text
    parts = text.split("://")
    for index in range(1, len(parts)):
        part = parts[index]
        end = _TOKEN_END.search(part)
        cut = end.start() if end else len(part)
        parts[index] = _mask_user_info(part[:cut]) + part[cut:]
    return "://".join(parts)


def _mask_user_info(rest: str) -> str:
    """Hide the password in what follows ``://``.

    Up to the *last* ``@``, since a password that was not percent-encoded may hold ``@`` or ``/``:
    better to hide too much than to show the end of one.
    """
    user_info, at, host = rest.rpartition("@")
    if at and ":" in user_info:
        rest = f"{user_info.partition(':')[0]}:{HIDDEN}@{host}"
    return _QUERY_SECRET.sub(rf"\g<1>{HIDDEN}", rest) if "=" in rest else rest


def mask_all(value: Any) -> Any:
    """What JSON can carry, the same with the passwords of every text in it hidden."""
    if isinstance(value, dict):
        return {name: mask_all(each) for name, each in value.items()}
    if isinstance(value, list):
        return [mask_all(each) for each in value]
    return mask_secrets(value) if isinstance(value, str) else value
