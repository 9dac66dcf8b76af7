"""Strangers' bytes as text, and AMQP headers as JSON can carry them, for rules and handlers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HEADER_DEPTH = 16  # of nested tables in AMQP headers; what lies deeper is left out
MAX_HEADERS = 65_536  # bytes of AMQP headers, unless `rabbitmq.max_headers` says otherwise

MARK = "\ufffd"
"""Begins a text that stands for bytes which aren't UTF-8; their hex digits follow."""

_LIKE_HEX = re.compile(f"{MARK}(?:[0-9a-f]{{2}})+")


def as_text(raw: bytes) -> str:
    """A text as it was sent; bytes that aren't UTF-8 as their hex digits behind `MARK`.

    Different bytes never give the same text, so that no id, type or header can pass for another: a
    text that looks like such hex digits becomes hex itself. It is linear in C, and at most twice as
    long as the bytes, plus the mark.
    """
    try:
        return apart(raw.decode())
    except UnicodeDecodeError:
        return MARK + raw.hex()


def apart(text: str) -> str:
    """A text that is valid UTF-8, kept apart from texts that stand for other bytes."""
    if text.startswith(MARK) and _LIKE_HEX.fullmatch(text):
        return MARK + text.encode().hex()
    return text


def json_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """AMQP headers as JSON can carry them: text for bytes, ISO dates, text for the rest.

    Different headers stay different: bytes that aren't UTF-8 are told in hex (`as_text`).
    """
    return {name: _json_value(value, HEADER_DEPTH) for name, value in headers.items()}


def _json_value(value: Any, depth: int) -> Any:  # noqa: PLR0911  one a kind
    match value:
        case None | bool() | float():
            return value
        case str():
            return apart(value)
        case int():
            return value if -(2**63) <= value < 2**64 else str(value)
        case bytes() | bytearray():
            return as_text(bytes(value))
        case dict() | list() | tuple() if depth == 0:
            return "(nested too deep)"
        case dict():
            return {str(name): _json_value(each, depth - 1) for name, each in value.items()}
        case list() | tuple():
            return [_json_value(each, depth - 1) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def headers_over(size: int, values: int, *, is_cut: bool, most: int) -> str:
    """Why headers are too much for a task; empty where they aren't.

    Args:
        size: bytes of them as AMQP has them.
        values: how many were read.
        is_cut: whether there are more than were read.
        most: bytes that they may have.
    """
    if size > most:
        return f"the headers have {size} bytes, over rabbitmq.max_headers = {most}"
    return f"the headers have over {values} values" if is_cut else ""


def are_deep(headers: Mapping[str, Any]) -> bool:
    """Whether something in headers lies deeper than `json_headers` tells."""
    return any(_is_deep(value, HEADER_DEPTH) for value in headers.values())


def _is_deep(value: Any, left: int) -> bool:
    if not isinstance(value, dict | list | tuple):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return left == 0 or any(_is_deep(each, left - 1) for each in inner)
