"""Strangers' bytes where text belongs, as a text that no other bytes give."""

from __future__ import annotations

import re

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
