"""Strangers' text on an operator's terminal."""

from __future__ import annotations


def plain_text(text: str) -> str:
    """Text in which nothing can drive the terminal: what isn't printable is escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
