"""Lua cut into tokens: as much of the language as is needed to change a script in one place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KEYWORDS = frozenset(
    """and break do else elseif end false for function if in local nil not or repeat return then
    true until while""".split()  # noqa: SIM905  a list of words is read at a glance
)
BINARY = frozenset(("and", "or", "==", "~=", "<=", ">=", "<", ">", "..", *"+-*/%^"))
OPENING = {"(": ")", "[": "]", "{": "}"}
_OPENED = frozenset([*OPENING, "function", "if", "do", "repeat"])
_CLOSED = frozenset([*OPENING.values(), "end", "until"])

_TOKEN = re.compile(
    r"""
      (?P<skip>   \s+ | \A\#![^\n]* | --\[(?P<a>=*)\[.*?\](?P=a)\] | --[^\n]*)
    | (?P<string> \[(?P<b>=*)\[.*?\](?P=b)\] | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
    | (?P<number> 0[xX][0-9a-fA-F]+ | \d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<name>   [A-Za-z_]\w*)
    | (?P<sign>   \.\.\. | \.\. | [=~<>]= | [-+*/%^\#<>=(){}\[\];:,.])
    """,
    re.VERBOSE | re.DOTALL,
)


class NotLua(Exception):
    """A text has something in it that is no token of Lua."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a sign, a number or a string of a script.

    Attributes:
        text: as it stands there.
        kind: ``name`` (of something), ``keyword``, ``string``, ``number`` or ``sign``.
        at: its place in the script, in characters.
    """

    text: str
    kind: str
    at: int

    @property
    def end(self) -> int:
        """The place behind it."""
        return self.at + len(self.text)

    @property
    def is_value(self) -> bool:
        """Whether an expression may end with it."""
        if self.kind == "keyword":
            return self.text in ("end", "nil", "true", "false")
        return self.kind != "sign" or self.text in (")", "]", "}", "...")


def tokens_of(script: str) -> list[Token]:
    """The tokens of a script, without its blanks and comments.

    Raises:
        NotLua: it has something else in it.
    """
    return list(_cut(script))


def _cut(script: str) -> Iterator[Token]:
    at = 0
    while at < len(script):
        found = _TOKEN.match(script, at)
        if found is None:
            raise NotLua(f"no token at {script[at : at + 20]!r}")
        at = found.end()
        kind = next(name for name in ("skip", "string", "number", "name", "sign") if found[name])
        if kind == "skip":
            continue
        text = found[0]
        yield Token(text, "keyword" if text in KEYWORDS else kind, found.start())


def joins(before: Token, after: Token) -> bool:
    """Whether an expression goes on from one token, which may end it, to the next one."""
    if not before.is_value:
        return True
    if after.text in BINARY or after.text in (".", ":"):
        return True
    if before.kind == "number" or before.text in ("...", "nil", "true", "false", "end"):
        return False
    return after.text in OPENING or (after.kind == "string" and before.kind == "name")


def pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """By number, the token that closes each bracket, and the other way round.

    A `function` is closed by its `end`, as a bracket is; so are the blocks in it.
    """
    open_: list[int] = []
    found: dict[int, int] = {}
    for n, token in enumerate(tokens):
        if token.kind == "string":
            continue
        if token.text in _OPENED:
            open_.append(n)
        elif token.text in _CLOSED:
            found[n] = open_.pop()
            found[found[n]] = n
    return found
