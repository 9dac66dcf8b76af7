"""Names in scripts: Redis says that one is not defined when a script comes to it, no sooner."""

from __future__ import annotations

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.schedule.table import ScheduleVerb
from groupflow.store.scripts import AnyVerb, Verb, read_lua, render
from tests.mutants.lua_tokens import Token, tokens_of

GIVEN = frozenset(
    [
        "KEYS",
        "ARGV",
        "redis",
        "cjson",
        "cmsgpack",
        "string",
        "table",
        "math",
        "bit",
        "unpack",
        "tonumber",
        "tostring",
        "type",
        "ipairs",
        "pairs",
        "pcall",
        "error",
        "next",
        "select",
        "assert",
    ]
)
BEGIN = ("local", "for", "function")  # the names that follow are made there


def undefined(script: str) -> set[str]:
    """Names that a script reads, and neither Redis nor anything in it makes."""
    tokens = tokens_of(script)
    made, read = set(GIVEN), set()
    is_list = False  # in the names behind `local`, `for` or `function`
    for n, token in enumerate(tokens):
        before, after = _text(tokens, n - 1), _text(tokens, n + 1)
        if token.kind != "name":
            is_list = token.text in BEGIN or (is_list and token.text in (",", "(", "."))
        elif is_list and before in (*BEGIN, ",", "(", "."):
            made.add(token.text)
        else:
            is_list = False
            is_field = before in (".", ":") or (before in ("{", ",") and after == "=")
            if not is_field:
                read.add(token.text)
    return read - made


def _text(tokens: list[Token], n: int) -> str:
    return tokens[n].text if 0 <= n < len(tokens) else ""


def test_what_is_defined_and_what_is_not() -> None:
    assert undefined("local a, b = 1, c local function f(x, y) return x + z.y end") == {"c", "z"}
    assert undefined("for i, j in ipairs(t) do a.b = { k = i, j, l } end g()") == {
        "t",
        "a",
        "l",
        "g",
    }


@pytest.mark.parametrize("verb", [*Verb, *OperatorVerb, *ScheduleVerb])
def test_scripts_read_what_they_or_their_rules_define(verb: AnyVerb) -> None:
    script = render(verb, "oldest", read_lua(verb.file)).text
    assert undefined(script) == set()
