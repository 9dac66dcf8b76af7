"""What becomes of a script's text on its way to Redis."""

from __future__ import annotations

import re

import pytest

from groupflow.operate.scripts import OperatorVerb
from groupflow.schedule.table import ScheduleVerb
from groupflow.store.keys import spelled
from groupflow.store.rendering import without_unused
from groupflow.store.scripts import AnyVerb, Scripts, Verb

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
    return re.findall(r"function (\w+)", without_unused((RULES,), text))


def test_what_a_script_names_stays_and_what_that_names() -> None:
    assert _left("return four()") == ["three", "four"]
    assert _left("return two()") == ["two", "one"]
    assert _left("return 1 -- four") == []
    assert "local once = 1" in without_unused((RULES,), "")


def test_keys_are_spelled_out() -> None:
    assert spelled("call('GET', K.lock .. group)") == "call('GET', TAG .. 'lock:' .. group)"
    assert spelled("LOCK.x") == "LOCK.x"
    with pytest.raises(KeyError):
        spelled("call('GET', K.unheard_of)")


@pytest.mark.parametrize("verb", [*Verb, *OperatorVerb, *ScheduleVerb])
def test_a_script_has_only_what_it_uses(verb: AnyVerb) -> None:
    """Each function that it is sent with is named where it is made, and by another."""
    text = re.sub(r"--.*", "", Scripts("oldest")[verb].text)
    for name in re.findall(r"^(?:local )?function (\w+)", text, re.MULTILINE):
        assert len(re.findall(rf"\b{name}\b", text)) > 1, name
    assert not re.search(r"\bK\.\w", text)
