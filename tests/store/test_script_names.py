"""What becomes of a script's text on its way to Redis, and that it names nothing undefined.

Redis says that a name is not defined when a script comes to it, no sooner.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import groupflow
from groupflow.doctor.redis import TRIES
from groupflow.operate.scripts import OperatorVerb
from groupflow.schedule.table import ScheduleVerb
from groupflow.store.keys import spelled
from groupflow.store.scripts import AnyVerb, Scripts, Verb, read_lua, render, without_unused
from tests.verification.mutants.lua_tokens import Token, tokens_of

VERBS = (*Verb, *OperatorVerb, *ScheduleVerb)
GIVEN = frozenset(
    re.findall(
        r"\w+",
        """KEYS ARGV redis cjson cmsgpack string table math bit unpack tonumber tostring type ipairs
        pairs pcall error next select assert""",
    )
)
SENT = {  # by the client itself
    *("PING", "INFO", "SCRIPT LOAD", "EVALSHA", "MULTI", "EXEC"),
    *("SUBSCRIBE", "UNSUBSCRIBE", "WAIT"),
}
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


RULES = """
local once = 1
local one, two
-- says what three does
local function three(a) return a end
local function four()
  return three(1)
end
function two()
  return one()
end
function one() return once end
"""


def _left(text: str) -> list[str]:
    return re.findall(r"function (\w+)", without_unused((RULES,), text)[0])


def test_what_a_script_names_stays_and_what_that_names() -> None:
    assert _left("return four()") == ["three", "four"]
    assert _left("return two()") == ["two", "one"]
    assert _left("return 1 -- four") == []
    assert "local once = 1" in without_unused((RULES,), "")[0]


def test_keys_are_spelled_out() -> None:
    assert spelled("call('GET', K.lock .. group)") == "call('GET', TAG .. 'lock:' .. group)"
    assert spelled("LOCK.x") == "LOCK.x"
    with pytest.raises(KeyError):
        spelled("call('GET', K.unheard_of)")


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_has_what_it_uses_and_no_more(verb: AnyVerb) -> None:
    """All that it reads is defined; each function is named where it is made, and by another."""
    assert undefined(render(verb, "oldest", read_lua(verb.file)).text) == set()
    text = re.sub(r"--.*", "", Scripts("oldest")[verb].text)
    for name in re.findall(r"^(?:local )?function (\w+)", text, re.MULTILINE):
        assert len(re.findall(rf"\b{name}\b", text)) > 1, name
    assert not re.search(r"\bK\.\w", text)


def test_every_file_is_sent() -> None:
    package = Path(groupflow.__file__).parent
    there = {f"{path.parents[1].name}/{path.stem}" for path in package.glob("*/lua/*.lua")}
    assert there == {file for verb in VERBS for file in (verb.file, *verb.rules)}


def test_a_name_is_one_verb_s() -> None:
    """A client knows its scripts by these names, and measures tell them so."""
    assert len({str(verb) for verb in VERBS}) == len(VERBS)


def test_no_right_is_spare() -> None:
    """The ACL file grants what scripts call and what the client sends; doctor tries the former."""
    acl = (Path(groupflow.__file__).parents[1] / "deploy/redis/groupflow.acl").read_text("utf-8")
    granted = {word[1:].replace("|", " ").upper() for word in acl.split() if word.startswith("+")}
    scripts = Scripts("oldest")
    called = {
        command
        for verb in VERBS
        # The one without a quote is a constant of that name.
        for command in re.findall(r"\bcall\('?([A-Z]{2,})\b", scripts[verb].text)
    }
    assert called == {"SET", *TRIES}
    assert granted == called | SENT
