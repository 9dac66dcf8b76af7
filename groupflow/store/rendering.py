"""How the text of a script becomes what Redis gets.

Redis runs a script as one function, anew each time: a table of key names would be filled again, and
each of the shared rules made again, with a look at all the others for what it refers to. At a claim
for one slot that was a sixth of what Redis had to do (docs/adr/0057). So each key's name is spelled
out where it stands, and of the rules a script has only those that it comes to.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from groupflow.store.keys import Keys

# A function of the rules: on a line of its own, or from the margin to an `end` at the margin.
_RULE = re.compile(
    r"^(?:local )?function (\w+)\((?:[^\n]* end|[^\n]*\n(?:(?!end$)[^\n]*\n)*end)$", re.MULTILINE
)
_NAMED_AHEAD = re.compile(r"^local \w+(?:, \w+)*$", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"\w+")

# While a slot is moved from one node of a cluster to another key by key, a script meets keys that
# are gone and keys that are there still: it would fail half-way, with its first half written. A key
# that never was is refused by such a node, so this fails first. Where slots move as a whole (Valkey
# 9, Redis 8.4) it never does.
_GUARD = "redis.call('EXISTS', K.never)\n"


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis gets it: its text, and the SHA-1 under which Redis keeps it."""

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> Script:
        """The script of a whole text."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def render(
    text: str,
    rules: Sequence[str],
    keys: Keys,
    order: str,
    *,
    in_cluster: bool = False,
    partitions: int = 0,
) -> Script:
    """Put constants and rules in front of a verb's own text, and spell out its keys.

    Args:
        text: the verb's own.
        rules: the texts of the files that it names, in order.
        keys: of its partition.
        order: which group goes first.
        in_cluster: whether wakes go to those who listen at the node that has the slot, not to all
            nodes.
        partitions: of the namespace, 0 where that isn't asked.
    """
    shebang = ""
    if text.startswith("#!"):  # Redis wants its flags on the very first line
        shebang, text = text.split("\n", 1)
    publish = "SPUBLISH" if in_cluster else "PUBLISH"
    constants = f"local ORDER, PUBLISH, PARTITIONS = '{order}', '{publish}', {partitions}"
    guard = _GUARD if in_cluster else ""
    front = without_unused(tuple(rules), text)
    whole = keys.spelled_in(f"{guard}{constants}\n{front}\n{text}")
    return Script.of(f"{shebang}\n{whole}".lstrip("\n"))


@cache
def without_unused(rules: tuple[str, ...], text: str) -> str:
    """The rules without the functions that neither a script nor what it uses of them names."""
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
    """The functions of a file, each with its name, and what stands between them with none."""
    pieces, end = list[tuple[str, str]](), 0
    for found in _RULE.finditer(rules):
        pieces += [("", rules[end : found.start()]), (found[1], found[0])]
        end = found.end()
    return [*pieces, ("", rules[end:])]


@cache
def _words(lua: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub("", lua)))
