"""Every way in which one condition, or one writing statement, of a Lua text can be wrong.

- A condition (`if`, `elseif`, `while`, `until`) is always true, or never.
- A comparison is turned round, or loses or gains its boundary. Where it is the whole of a condition
  the first is left out: who sees "always" and "never" apart sees that too.
- `not` is dropped, unless it stands before a whole condition, for the same reason.
- One operand of `and` and `or` is dropped: `a and b or c` becomes `b or c`, `a or c`, `a and b`,
  and `c`.
- A call that stands for itself is dropped; all that a script writes is written by one.
- A call that is returned isn't made, and nil is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.verification.mutants.lua_tokens import BINARY, OPENING, Token, joins, pairs, tokens_of

_CONDITIONS = {"if": "then", "elseif": "then", "while": "do"}
_COMPARISONS = {
    "==": ("~=",),
    "~=": ("==",),
    "<": (">=", "<="),
    "<=": (">", "<"),
    ">": ("<=", ">="),
    ">=": ("<", ">"),
}
_IN_EXPRESSIONS = frozenset(["and", "or", "not", "nil", "true", "false"])
_ENDS_A_STATEMENT = frozenset(["then", "do", "else", "repeat", "end", "break", ";"])

Span = tuple[int, int]  # the first and the last token of something


@dataclass(frozen=True, slots=True)
class Mutant:
    """A script that is wrong in one place.

    Attributes:
        file: which, as `read_lua` takes it.
        number: of the changed line, from 1.
        line: that line as it was, without its indentation.
        becomes: that line as it is.
        what: what was done, in a word.
        text: the whole script.
        nth: which of the lines that are alike and become the same, from 1.
    """

    file: str
    number: int
    line: str
    becomes: str
    what: str
    text: str
    nth: int = 1

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What a list knows it by, which outlives changes elsewhere in the file."""
        return self.file, self.line, self.becomes, self.nth


def mutants_of(file: str, script: str) -> list[Mutant]:
    """All mutants of a script, in the order of their places.

    Raises:
        NotLua: it is no Lua that is understood here.
    """
    found: dict[str, Mutant] = {}
    for first, last, put, what in sorted(_Text(script).changes()):
        text = script[:first] + put + script[last:]
        if text not in found and text != script:
            line, becomes = _line_at(script, first), _line_at(text, first)
            number = script.count("\n", 0, first) + 1
            alike = sum((each.line, each.becomes) == (line, becomes) for each in found.values())
            found[text] = Mutant(file, number, line, becomes, what, text, alike + 1)
    return list(found.values())


def _line_at(text: str, at: int) -> str:
    first = text.rfind("\n", 0, at) + 1
    last = text.find("\n", at)
    return text[first : last if last >= 0 else len(text)].strip()


class _Text:
    """A script, its tokens, and what can be changed in it."""

    def __init__(self, script: str) -> None:
        self._tokens = tokens_of(script)
        self._script = script
        self._pairs = pairs(self._tokens)

    def changes(self) -> Iterator[tuple[int, int, str, str]]:
        """Each change: from where to where (in characters), what is put there, its name."""
        wholes: set[int] = set()
        for span in self._conditions():
            wholes |= self._whole(span)
            first, last = self._characters(span)
            yield first, last, "true", "always"
            yield first, last, "false", "never"
        for n, token in enumerate(self._tokens):
            if token.kind == "sign" and token.text in _COMPARISONS:
                turned, *boundary = _COMPARISONS[token.text]
                for sign in [*([] if n in wholes else [turned]), *boundary]:
                    yield token.at, token.end, sign, f"{token.text} is {sign}"
            elif token.text == "not" and n not in wholes:
                yield token.at, token.end + 1, "", "no not"
        for operands in self._chains():
            yield from self._without_one(operands)
        yield from self._without_calls()

    def _characters(self, span: Span) -> Span:
        return self._tokens[span[0]].at, self._tokens[span[1]].end

    def _conditions(self) -> Iterator[Span]:
        for n, token in enumerate(self._tokens):
            if token.kind == "keyword" and token.text in (*_CONDITIONS, "until"):
                yield n + 1, self._last(n + 1)

    def _whole(self, condition: Span) -> set[int]:
        """The comparison or the `not` that a condition consists of, but for one with and, or."""
        top = list(self._top(condition))
        if any(self._tokens[n].text in ("and", "or") for n in top):
            return set()
        compared = {n for n in top if self._tokens[n].text in _COMPARISONS}
        return compared or {n for n in top[:1] if self._tokens[n].text == "not"}

    def _top(self, span: Span) -> Iterator[int]:
        """The tokens of an expression, but for what stands in brackets and functions in it."""
        n = span[0]
        while n <= span[1]:
            yield n
            n = max(self._pairs.get(n, n), n) + 1

    def _last(self, first: int) -> int:
        """The last token of the expression that begins at one."""
        n = first
        while True:
            n = max(self._pairs.get(n, n), n)
            after = self._tokens[n + 1] if n + 1 < len(self._tokens) else None
            if after is None or not self._goes_on(self._tokens[n], after):
                return n
            n += 1

    def _first(self, last: int) -> int:
        """The first token of the expression that ends at one."""
        n = last
        while True:
            n = min(self._pairs.get(n, n), n)
            before = self._tokens[n - 1] if n else None
            if before is None or before.text in OPENING or before.text == "function":
                return n
            if not before.is_value and not _is_operator(before):
                return n
            if not joins(before, self._tokens[n]):
                return n
            n -= 1

    @staticmethod
    def _goes_on(before: Token, after: Token) -> bool:
        if after.kind == "keyword" and after.text not in _IN_EXPRESSIONS | {"function"}:
            return False
        return after.text not in (",", ";", "=", ")", "]", "}") and joins(before, after)

    def _chains(self) -> Iterator[list[Span]]:
        """The operands of each chain of `or`, and of each of `and`."""
        seen: set[Span] = set()
        for n, token in enumerate(self._tokens):
            if token.text not in ("and", "or"):
                continue
            whole = self._first(n - 1), self._last(n + 1)
            if whole in seen:
                continue
            seen.add(whole)
            either = self._split(whole, "or")
            for chain in (either, *(self._split(part, "and") for part in either)):
                if len(chain) > 1:
                    yield chain

    def _split(self, span: Span, word: str) -> list[Span]:
        found, first = [], span[0]
        for n in self._top(span):
            if self._tokens[n].text == word:
                found.append((first, n - 1))
                first = n + 1
        return [*found, (first, span[1])]

    def _without_one(self, operands: list[Span]) -> Iterator[tuple[int, int, str, str]]:
        places = [self._characters(each) for each in operands]
        for n, (first, last) in enumerate(places):
            what = f"no {' '.join(self._script[first:last].split())}"
            if n + 1 < len(places):
                yield first, places[n + 1][0], "", what
            else:
                yield places[n - 1][1], last, "", what

    def _without_calls(self) -> Iterator[tuple[int, int, str, str]]:
        for n, token in enumerate(self._tokens):
            before = self._tokens[n - 1] if n else None
            if token.kind != "name":
                continue
            last = self._last_of_call(n)
            if last is None:
                continue
            after = self._tokens[last + 1] if last + 1 < len(self._tokens) else None
            first, end = self._characters((n, last))
            if before is not None and before.text == "return":
                if after is None or after.text in ("end", "else", "elseif"):
                    yield first, end, "nil", "returns nil"
            elif self._is_statement(before, token, after):
                yield first, end, "", "no call"

    @staticmethod
    def _is_statement(before: Token | None, token: Token, after: Token | None) -> bool:
        if after is not None and after.text in ("=", ","):
            return False
        if before is None or before.text in _ENDS_A_STATEMENT:
            return True
        return before.is_value and not joins(before, token)

    def _last_of_call(self, n: int) -> int | None:
        """The last token of a name and what is behind it, where that is a call."""
        is_call = False
        while n + 1 < len(self._tokens):
            after = self._tokens[n + 1]
            if after.text in (".", ":"):
                n, is_call = n + 2, False
            elif after.text in OPENING and after.kind == "sign":
                n, is_call = self._pairs[n + 1], after.text != "["
            elif after.kind == "string":
                n, is_call = n + 1, True
            else:
                break
        return n if is_call else None


def _is_operator(token: Token) -> bool:
    if token.kind == "keyword":
        return token.text in ("and", "or", "not")
    return token.text in BINARY or token.text in ("#", ".", ":")
