"""Text that can't drive who shows it: controls, and marks that turn or hide what follows them.

Ids, group keys, reasons and bodies come from strangers, and end on terminals and in logs. There
U+009B begins a command as ESC does, and a bidirectional mark shows a line other than it is. All
that is written there goes through one of the two functions here, where it is written.
"""

from __future__ import annotations

import json
import re

# What str.isprintable() refuses and a JSON encoder lets through: controls, and marks nobody sees.
_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff"
    "\U000e0000-\U000e007f]"
)


def plain_text(text: str) -> str:
    """Text for people, on one line: whatever isn't printable is escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def plain_json(text: str) -> str:
    """JSON for a terminal or a log: the same value, with what isn't seen escaped as JSON does.

    Args:
        text: encoded JSON, in which such characters can stand within strings alone.
    """
    return _UNSEEN.sub(_as_json, text)


def _as_json(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]
