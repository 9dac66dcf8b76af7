"""The shared rules in front of a script, without those that it doesn't use.

Redis runs a script as one function: it would make each of the shared rules again on every run,
with a look at all the others for what it refers to (docs/adr/0057).
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

# A function of the rules: on a line of its own, or from the margin to an `end` at the margin.
_RULE = re.compile(
    r"^(?:local )?function (\w+)\((?:[^\n]* end|[^\n]*\n(?:(?!end$)[^\n]*\n)*end)$", re.MULTILINE
)
_NAMED_AHEAD = re.compile(r"^local \w+(?:, \w+)*$", re.MULTILINE)
# Comments and texts name no function. Nor does a field of something.
_UNREAD = re.compile(r"--.*|'[^'\n]*'")
_WORD = re.compile(r"(?<![.\w])\w+")


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis gets it: its text, and the SHA-1 under which Redis keeps it."""

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> Script:
        """The script of a whole text."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@cache
def without_unused(rules: tuple[str, ...], text: str) -> str:
    """The rules without the functions that the script doesn't name, itself or through others."""
    pieces = [piece for each in rules for piece in _in_pieces(each)]
    named: dict[str, set[str]] = defaultdict(set)  # by each function, what it names
    to_see = set(_words(text))
    for name, lua in pieces:
        (named[name] if name else to_see).update(_words(_NAMED_AHEAD.sub("", lua)))
    used = set[str]()
    while to_see := (to_see & named.keys()) - used:
        used |= to_see
        to_see = set[str]().union(*(named[name] for name in to_see))
    return "\n".join(lua for name, lua in pieces if not name or name in used)


@cache
def _in_pieces(rules: str) -> list[tuple[str, str]]:
    """The functions of a file, each with its name, and the text between them with none."""
    pieces, end = list[tuple[str, str]](), 0
    for found in _RULE.finditer(rules):
        pieces += [("", rules[end : found.start()]), (found[1], found[0])]
        end = found.end()
    return [*pieces, ("", rules[end:])]


@cache
def _words(lua: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_UNREAD.sub("", lua)))
