"""Escapes controls, and marks that turn or hide text, so that text can't drive its terminal.

Ids, group keys, reasons and bodies come from strangers, and end on terminals and in logs. On a
terminal, U+009B begins a command as ESC does, and a bidirectional mark shows a line other than it
is. All output there goes through one of the two functions here, where it is written.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from functools import cache

_CATEGORIES = ("Cc", "Cf", "Zl", "Zp")  # controls, and invisible marks


@cache  # made when first needed: it takes longer than most modules' import
def _unseen() -> re.Pattern[str]:
    """What isn't seen and a JSON encoder lets through."""
    # Such marks are in these ranges only; below U+007F, JSON's strings can have none.
    codes = itertools.chain(range(0x7F, 0x20000), range(0xE0000, 0xE1000))
    unseen = {code for code in codes if unicodedata.category(chr(code)) in _CATEGORIES}
    # And code points that are no characters: a terminal may take them for anything.
    unseen |= {0xFFFE, 0xFFFF, *range(0xE0000, 0xE0080)}
    return re.compile("[" + "".join(f"\\U{code:08x}" for code in sorted(unseen)) + "]")


def plain_text(text: str) -> str:
    """Text for people, on one line: what isn't printable is escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def plain_json(text: str) -> str:
    """Encoded JSON for a terminal or a log: the same value, with what isn't seen escaped."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _unseen().sub(_as_json, text)


def _as_json(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]
