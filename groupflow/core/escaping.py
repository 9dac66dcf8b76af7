"""Escapes controls, and marks that turn or hide text, so that text can't drive its terminal.

Ids, group keys, reasons and bodies come from strangers, and end on terminals and in logs. On a
terminal, U+009B begins a command as ESC does, and a bidirectional mark shows a line other than it
is. All output there goes through one of the two functions here, where it is written.
"""

from __future__ import annotations

import json
import re

_BEYOND_ASCII = re.compile(r"[^\n -~]+")  # of a JSON text, whose lines end as they do


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
