"""The mutants of the Lua scripts: one condition, or one statement that writes, is wrong.

- The condition of `if`, `elseif` or `while` is always true, or never.
- A comparison is turned round, or loses or gains its boundary. Where a condition has no more in it,
  the first is left out: a test that tells "always" from "never" sees that too.
- `not` is dropped, or what stands before or behind an `and` or `or`.
- A call that stands for itself is dropped; all that a script writes is written by one.
- A call that is returned isn't made, and nil is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from groupflow.operate.scripts import OperatorVerb
from groupflow.schedule.table import ScheduleVerb
from groupflow.store import scripts
from groupflow.store.scripts import AnyVerb, Script, Scripts, Verb
from tests.verification.mutants.lua_tokens import BINARY, OPENING, joins, pairs, tokens_of
from tests.verification.mutants.trials import Mutant

TESTS = ("tests/store", "tests/operate", "tests/schedule")
LEAST = {"store": 0.65, "operate": 0.4, "schedule": 0.4}
VERBS: tuple[AnyVerb, ...] = (*Verb, *OperatorVerb, *ScheduleVerb)
FILES = sorted({file for verb in VERBS for file in (verb.file, *verb.rules)})

_CONDITIONS = {"if": "then", "elseif": "then", "while": "do"}
_COMPARISONS = {
    "==": ("~=",), "~=": ("==",), "<": (">=", "<="), "<=": (">", "<"), ">": ("<=", ">="),
    ">=": ("<", ">"),
}  # fmt: skip
_IN_OPERANDS = frozenset(["not", "#", ".", ":", *BINARY]) - {"and", "or"}
_ENDS_A_STATEMENT = frozenset(["then", "do", "else", "repeat", "end", "break", ";"])


def mutants() -> list[Mutant]:
    """All mutants of all scripts, in the order of their places."""
    paths = {file: "groupflow/{}/lua/{}.lua".format(*file.split("/")) for file in FILES}
    return [
        Mutant(path, line, change, frozenset([file]), partial(put_in, file, text))
        for file, path in paths.items()
        for text, (line, change) in changed(scripts.read_lua(file)).items()
    ]


def changed(script: str) -> dict[str, tuple[int, str]]:
    """By the text of each mutant of a script, the number of the line that is wrong, and how.

    Raises:
        NotLua: it is no Lua that is understood here.
    """
    found: dict[str, tuple[int, str]] = {}
    for first, last, put, what in sorted(_Text(script).changes()):
        text = script[:first] + put + script[last:]
        line = script.count("\n", 0, first)
        found.setdefault(text, (line + 1, f"{what} in {script.splitlines()[line].strip()}"))
    return found


def put_in(file: str, text: str) -> None:
    """From now on the file has another text in this process."""
    sound = scripts.read_lua
    scripts.read_lua = lambda name: text if name == file else sound(name)  # type: ignore[assignment]
    scripts.render.cache_clear()


def watch(_: object) -> set[str]:
    """The files of all scripts that are made from now on; each client makes those that it runs."""
    made: set[str] = set()
    make = Scripts.__missing__

    def watched(each: Scripts, verb: AnyVerb) -> Script:
        made.update((verb.file, *verb.rules))
        return make(each, verb)

    Scripts.__missing__ = watched  # type: ignore[assignment, method-assign]
    return made


class _Text:
    """A script, its tokens, and what can be changed in it."""

    def __init__(self, script: str) -> None:
        self._tokens = tokens_of(script)
        self._script = script
        self._pairs = pairs(self._tokens)

    def changes(self) -> Iterator[tuple[int, int, str, str]]:
        """Each change: from where to where (in characters), what is put there, its name."""
        turned = set[int]()  # comparisons that a condition consists of
        for n, token in enumerate(self._tokens):
            if token.text in _CONDITIONS and token.kind == "keyword":
                last = self._end_of_condition(n)
                turned |= self._whole(range(n + 1, last + 1))
                for always in ("true", "false"):
                    yield *self._span(n + 1, last), always, always
            elif token.text in _COMPARISONS:
                for other in _COMPARISONS[token.text][n in turned :]:
                    yield token.at, token.end, other, f"{other} for {token.text}"
            elif token.text == "not":
                yield token.at, token.end + 1, "", "no not"
            elif token.text in ("and", "or"):
                first, last = self._operand_before(n), self._operand_behind(n)
                for one, another in ((first, n), (n, last)):
                    since, until = self._span(one, another)
                    yield since, until, "", f"no {self._script[since:until]}"
            elif token.kind == "name" and (last := self._last_of_call(n)) > n:
                yield from self._without_call(n, last)

    def _span(self, first: int, last: int) -> tuple[int, int]:
        return self._tokens[first].at, self._tokens[last].end

    def _end_of_condition(self, n: int) -> int:
        end = _CONDITIONS[self._tokens[n].text]
        while self._tokens[n + 1].text != end:
            n = max(self._pairs.get(n + 1, 0), n + 1)
        return n

    def _whole(self, condition: range) -> set[int]:
        """The comparison that a condition consists of, if it does."""
        if any(self._tokens[n].text in ("and", "or") for n in condition):
            return set()
        return {n for n in condition if self._tokens[n].text in _COMPARISONS}

    def _operand_before(self, n: int) -> int:
        """The first token of the operand that ends before one."""
        while True:
            n = min(self._pairs.get(n - 1, n), n - 1)
            before = self._tokens[n - 1]
            if not (before.is_value or before.text in _IN_OPERANDS):
                return n
            if before.text == "function" or not joins(before, self._tokens[n]):
                return n

    def _operand_behind(self, n: int) -> int:
        """The last token of the operand that begins behind one."""
        while True:
            n = max(self._pairs.get(n + 1, n), n + 1)
            behind = self._tokens[n + 1] if n + 1 < len(self._tokens) else None
            if behind is None or not joins(self._tokens[n], behind):
                return n
            is_part = behind.is_value or behind.text in (*_IN_OPERANDS, *OPENING, "function")
            if not is_part or behind.text in OPENING.values():
                return n

    def _last_of_call(self, n: int) -> int:
        """The last token of a name and what stands behind it, where that is a call; else -1."""
        is_call = False
        while n + 1 < len(self._tokens):
            behind = self._tokens[n + 1]
            if behind.text in (".", ":"):
                n, is_call = n + 2, False
            elif behind.text in OPENING and behind.kind == "sign":
                n, is_call = self._pairs[n + 1], behind.text != "["
            elif behind.kind == "string":
                n, is_call = n + 1, True
            else:
                break
        return n if is_call else -1

    def _without_call(self, n: int, last: int) -> Iterator[tuple[int, int, str, str]]:
        """Where the call is a statement, or all that is returned."""
        before = self._tokens[n - 1] if n else None
        behind = self._tokens[last + 1].text if last + 1 < len(self._tokens) else "end"
        if before is not None and before.text == "return":
            if behind in ("end", "else", "elseif"):
                yield *self._span(n, last), "nil", "nil for the call"
        elif behind not in ("=", ",") and (
            before is None
            or before.text in _ENDS_A_STATEMENT
            or (before.is_value and not joins(before, self._tokens[n]))
        ):
            yield *self._span(n, last), "", "no call"
