"""What may be shown: secrets are hidden, and controls escaped.

Ids, group keys, reasons and bodies come from strangers, and end on terminals and in logs. On a
terminal, U+009B begins a command as ESC does, and a bidirectional mark shows a line other than it
is. All output there goes through `plain_text` or `plain_json`, where it is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote, urlsplit

HIDDEN = "***"

# A parameter of a query or a fragment. No name reaches past the next delimiter, so that a text with
# any number of them is read once.
_PARAMETER = re.compile(r"([?&;#])([^?&;#=\s\"'<>`]*)=([^&;#\s\"'<>`]+)")
_SECRET_NAME = re.compile(
    r"(?i)auth|bearer|code|cookie|cred|hmac|jwt|key|pass|pwd|secret|session|sid\b|sig|ticket|token"
    r"|(?<![a-z])(?:mac|otp|p|pin|pw|sas)(?![a-z])"
)
# ``--password=…``, also in an environment or in quotes. A name is read once, from its beginning on.
_ARGUMENT = re.compile(r"(?<![\w-])([\w-]++)=(?!\*\*\*)(\"[^\"\n]*\"?|'[^'\n]*'?|[^\s\"'<>`]+)")
_ARGUMENT_NAME = re.compile(r"(?i)auth|cred|api[-_]?key|pass|pwd|secret|token")
# A user and the part of his password that comes before a blank; no port of a host, nor IPv6's.
_CUT_PASSWORD = re.compile(r"[^\s\[/?#@:]*:(?!\d{1,5}/)")
_LINE_END = re.compile(r"[\n\r\"'<>`]")
_TOKEN_END = re.compile(r"[\s\"'<>`]")
_BEYOND_ASCII = re.compile(r"[^\n -~]+")  # of a JSON text, whose lines end as they do
_SHORT = 4  # characters: a shorter part of a URL is no secret, and may be any word


def mask_url(url: str) -> str:
    """The URL with its password hidden, and its user where it has no password: a token, mostly.

    What has no scheme is hidden whole: it may be a bare password that was put in the wrong place.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return HIDDEN if url else ""
    return f"{scheme}://{_mask_rest(rest)}"


def mask_place(url: str) -> str:
    """Of a URL only where it leads: scheme, host and port.

    For URLs whose path may itself be the secret, as webhooks' are. What can't be read as a URL is
    hidden whole.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return HIDDEN
    if not (parts.scheme and host):
        return HIDDEN if url else ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")


def mask_command(command: Sequence[str]) -> str:
    """Of a command only its name: arguments may be passwords."""
    return PurePath(command[0]).name or command[0]


def mask_parts(text: str, url: str) -> str:
    """A text that the server at `url` wrote, without what `mask_place` hides of that URL.

    Servers repeat what they were asked: ``Cannot POST /hooks/T0KEN``.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return text
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    pieces = {target, parts.path, parts.username or "", parts.password or ""}
    pieces |= {value.partition("=")[2] for value in parts.query.split("&")}
    pieces |= {unquote(piece) for piece in pieces}
    text = text.replace(url, mask_place(url))
    for piece in sorted(pieces, key=len, reverse=True):
        if len(piece) >= _SHORT:
            text = text.replace(piece, HIDDEN)
    return mask_secrets(text)


def mask_secrets(text: str) -> str:
    """The text without the secrets of URLs and of ``password=…`` in it; linear in its length."""
    if "://" in text:
        first, *parts = text.split("://")
        text = "://".join([first, *(_mask_part(part) for part in parts)])
    return _ARGUMENT.sub(_mask_argument, text) if "=" in text else text


def has_secret(text: str) -> bool:
    """Whether a setting's text holds a secret: in a URL, or as a command's ``--password=…``.

    The password of RabbitMQ's default user, guest, is public.
    """
    text = text.replace("://guest:guest@", "://")
    return mask_secrets(text) != text


def _mask_part(part: str) -> str:
    """Hide the secrets of a URL in a text that begins behind its ``://``."""
    end = _TOKEN_END.search(part)
    cut = end.start() if end else len(part)
    if end and "@" not in part[:cut] and _CUT_PASSWORD.match(part[:cut]):
        line = _LINE_END.search(part)
        at = part.rfind("@", cut, line.start() if line else len(part))
        if at > cut:  # a blank in a password: the user info goes on until there
            rest = _TOKEN_END.search(part, at)
            cut = rest.start() if rest else len(part)
    return _mask_rest(part[:cut]) + part[cut:]


def _mask_argument(found: re.Match[str]) -> str:
    is_secret = _ARGUMENT_NAME.search(found[1]) is not None
    return f"{found[1]}={HIDDEN}" if is_secret else found[0]


def _mask_rest(rest: str) -> str:
    """Hide the secrets in what follows ``://``.

    The user info is taken up to the *last* ``@``, since a password that was not percent-encoded may
    hold ``@`` or ``/``: better to hide too much than to show the end of one.
    """
    user_info, at, host = rest.rpartition("@")
    if at:
        user, colon, _ = user_info.partition(":")
        rest = f"{user}:{HIDDEN}@{host}" if colon else f"{HIDDEN}@{host}"
    return _PARAMETER.sub(_mask_parameter, rest) if "=" in rest else rest


def _mask_parameter(found: re.Match[str]) -> str:
    delimiter, name, _ = found.groups()
    is_secret = _SECRET_NAME.search(unquote(name)) is not None
    return f"{delimiter}{name}={HIDDEN}" if is_secret else found.group()


def mask_all(value: Any) -> Any:
    """A JSON value with the passwords in its texts hidden."""
    if isinstance(value, dict):
        return {name: mask_all(each) for name, each in value.items()}
    if isinstance(value, list):
        return [mask_all(each) for each in value]
    return mask_secrets(value) if isinstance(value, str) else value


def plain_text(text: str) -> str:
    """Text for people, on one line: what isn't printable is escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def plain_json(text: str) -> str:
    """Encoded JSON for a terminal or a log: the same value, with what isn't printable escaped."""
    return _BEYOND_ASCII.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    run = found.group()
    if run.isprintable():
        return run
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in run)
