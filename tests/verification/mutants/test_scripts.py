"""Damage done to scripts: each condition is found, and a trial tells the dead from the living."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from groupflow.store.scripts import read_lua
from tests.deadlines import deadline
from tests.verification.mutants.lua_mutants import Mutant, mutants_of
from tests.verification.mutants.lua_tokens import NotLua
from tests.verification.mutants.scripts import FILES, judge, run
from tests.verification.mutants.scripts_left import Left, read_left
from tests.verification.mutants.scripts_trials import Verdict

ROOT = Path(__file__).parents[3]
LEASE = "if lease < now or call('EXISTS', K.paused_all, K.recovering) > 0 then idle = {} end"
FORGOTTEN = "if call('EXISTS', K.paused_all, K.recovering) > 0 then idle = {} end"
KILLER = "tests/store/test_claim.py::test_nothing_new_is_given_to_a_daemon_whose_lease_is_over"


def changed(script: str) -> set[str]:
    """All that becomes of a script."""
    found = mutants_of("store/tiny", script)
    assert all(mutant.text.count("\n") == script.count("\n") for mutant in found)
    return {mutant.text for mutant in found}


def test_a_condition_is_always_true_or_never() -> None:
    assert changed("if f(a).b[1] then c = 1 end") == {
        "if true then c = 1 end",
        "if false then c = 1 end",
    }
    assert changed("while #x < n do x[1] = 2 end") == {
        "while true do x[1] = 2 end",
        "while false do x[1] = 2 end",
        "while #x <= n do x[1] = 2 end",
    }
    assert "if a then b = 1 elseif false then b = 2 end" in changed(
        "if a then b = 1 elseif not c then b = 2 end"
    )


def test_a_comparison_is_turned_and_its_boundary_moved() -> None:
    assert changed("return a >= b") == {"return a < b", "return a > b"}
    assert changed("return a ~= b, c == d") == {"return a == b, c == d", "return a ~= b, c ~= d"}


def test_one_operand_is_dropped() -> None:
    assert changed("local x = a and f(b or c) or not d") == {
        "local x = not d",
        "local x = f(b or c) or not d",
        "local x = a or not d",
        "local x = a and f(b or c)",
        "local x = a and f(b or c) or d",
        "local x = a and f(c) or not d",
        "local x = a and f(b) or not d",
    }
    sort = "table.sort(t, function(a, b) return a[1] > b[1] and c end) local d = 1"
    assert sort.replace("a[1] > b[1] and ", "") in changed(sort)
    assert sort.replace(" and c", "") in changed(sort)


def test_a_call_that_stands_for_itself_is_dropped() -> None:
    script = "local x = f(1)\nt[g()] = 2\ncall('SET', k)\nwake() if a then b.c('x') end\nreturn h()"
    dropped = {
        script.replace("call('SET', k)", ""),
        script.replace("wake()", ""),
        script.replace("b.c('x')", ""),
        script.replace("h()", "nil"),
    }
    assert changed(script) - dropped == {
        script.replace("if a", "if true"),
        script.replace("if a", "if false"),
    }


def test_comments_and_texts_stay() -> None:
    script = (
        "#!lua if not x then\n-- a and b\n--[[ a == b ]] local x = 'a and b' .. [[not c]] .. \"<\""
    )
    assert changed(script) == set()


@pytest.mark.parametrize("script", ["local x = 'open", "if a then", "x = ?", "f(]"])
def test_what_is_no_lua_is_refused(script: str) -> None:
    with pytest.raises(NotLua):
        mutants_of("store/tiny", script)


def test_every_script_has_its_mutants() -> None:
    for file in FILES:
        found = mutants_of(file, read_lua(file))
        assert len({mutant.text for mutant in found}) == len(found) > 0


def test_what_is_new_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A survivor that isn't listed, and what is listed and is none any more."""
    mutant = Mutant("store/x", 1, "if a then", "if true then", "always", "")
    survived, killed = Verdict(mutant, "survived", "", 1), Verdict(mutant, "killed", "t", 1)
    listed = Left(*mutant.key, "equivalent", "for a reason")
    assert judge([survived], [listed], whole=True) == 0
    assert judge([killed], [], whole=True) == 0
    assert capsys.readouterr().out == ""
    assert judge([survived], [], whole=True) == 1
    assert "survives: store/x:1 always" in capsys.readouterr().out
    assert judge([killed], [listed], whole=True) == 1
    assert judge([], [listed], whole=True) == 1
    assert judge([], [listed], whole=False) == 0


def test_the_dead_are_told_from_the_living() -> None:
    """On a real Redis: no lease at all dies, the sound script lives, no Lua is neither."""
    told = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import try_three; try_three()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline(),
    )
    assert told.returncode == 0, told.stdout + told.stderr
    hows = json.loads(told.stdout.splitlines()[-1])
    assert hows == ["killed", "survived", "invalid"]


def try_three() -> None:
    """In a process of its own: a mutant, the script as it is, and something that is no Lua."""
    mutants = mutants_of("store/claiming", read_lua("store/claiming"))
    (mutant,) = (each for each in mutants if each.key == ("store/claiming", LEASE, FORGOTTEN, 1))
    sound = replace(mutant, text=read_lua("store/claiming"))
    broken = replace(mutant, text=mutant.text + "\nif")
    trials = run([mutant, sound, broken], [KILLER])
    assert not trials.problem, trials.problem
    print(json.dumps([verdict.how for verdict in trials.verdicts]))


def test_what_is_listed_is_a_mutant() -> None:
    """Each once, and with a reason: of a line that changed since, it has to be found anew."""
    there = {mutant.key for file in FILES for mutant in mutants_of(file, read_lua(file))}
    left = read_left()
    assert {each.key for each in left} - there == set()
    assert len({each.key for each in left}) == len(left)
    assert {each.verdict for each in left} <= {"equivalent", "left"}
    assert all(each.reason for each in left)
