"""The model's runner: what it tells, and what it refuses. The whole search is `make model`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.protocol import __main__ as protocol
from tests.protocol.__main__ import MODEL, ends, main, rules_of, with_all

pytestmark = pytest.mark.timeout(300)  # each search compiles a program

# A lamp that is switched `FAULTS` times at most; %s is what it does then.
LAMP = """
#define DARK 1    /* S1: a lamp that is out is dark */
#define QUIET 2   /* S2: a lamp makes no noise */
byte lit, left = FAULTS;
active proctype lamp() {
end: do
    :: d_step { left && !lit -> left--; lit = 1; printf("the lamp is lit,\\n") }
    %s
    od
}
"""
BREAKS = 'd_step { lit -> printf("broken: S1: it is lit\\n"); assert(false) }'


@pytest.fixture
def lamp(tmp_path: Path) -> Path:
    return tmp_path / "lamp.pml"


def test_a_trail_is_told_as_a_story() -> None:
    verdict = protocol.without(MODEL, rules_of(MODEL)["DEDUP"])
    assert verdict.is_good
    assert verdict.story == (
        "intake enqueues message 1",
        "intake stops and starts again: RabbitMQ gives it again what is not acked",
        "intake enqueues message 1",
        "broken: S6: the message becomes a second task",
    )


def test_with_all_rules_each_history_is_searched() -> None:
    verdict = with_all(MODEL, 2, 0)
    assert verdict.is_good
    assert re.fullmatch(r"all rules, window 2, 0 faults: \d+ states, each .* holds", verdict.line)
    assert ends(MODEL, 2, 0).is_good


def test_each_rule_is_used_by_the_model() -> None:
    text, rules = MODEL.read_text(), rules_of(MODEL)
    assert set(re.findall(r"\brule\(([A-Z_]+)\)", text)) == set(rules)
    numbers = re.findall(r"^#define [A-Z_]+ (\d+) +/\* [SL]", text, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, len(rules) + 1))


RUNS = [
    ("", "QUIET", 1, "all conditions hold without it, so it is no rule"),
    (f":: {BREAKS}", "DARK", 0, "    the lamp is lit\n    broken: S1: it is lit\n"),
    (f":: {BREAKS}", "QUIET", 1, "BROKEN: S1 breaks, not S2"),
    (":: nonsense", "DARK", 1, "spin refused lamp.pml"),
]


@pytest.mark.parametrize(("does", "rule", "code", "said"), RUNS)
def test_what_fails_the_run(
    lamp: Path, capsys: pytest.CaptureFixture[str], *, does: str, rule: str, code: int, said: str
) -> None:
    """A rule without a counterexample, or with that of another; a model that spin refuses."""
    lamp.write_text(LAMP % does)
    assert main([rule], lamp) == code
    assert said in capsys.readouterr().out


def test_a_condition_that_breaks_with_all_rules_fails_the_run(lamp: Path) -> None:
    lamp.write_text(LAMP % f":: {BREAKS}")
    assert with_all(lamp, 1, 0).is_good
    verdict = with_all(lamp, 1, 1)
    assert not verdict.is_good
    assert verdict.story == ("the lamp is lit", "broken: S1: it is lit")


def test_a_history_without_an_end_fails_the_run(lamp: Path) -> None:
    lamp.write_text(LAMP % ":: d_step { lit -> lit = 1 - lit; left = 1 }")
    assert with_all(lamp, 1, 1).is_good
    assert not ends(lamp, 1, 1).is_good


CUT = ("error: max search depth too small", "Warning: Search not completed", "pan: out of memory")


@pytest.mark.parametrize("said", ["", *(f"{each}\n12 states, stored\nerrors: 0" for each in CUT)])
def test_a_search_that_was_cut_short_is_none(said: str) -> None:
    with pytest.raises(protocol.SearchFailed, match="not searched everything"):
        protocol.read_report(said)


def test_a_report_says_how_many_states_and_which_error() -> None:
    whole = "State-vector 140 byte, depth reached 49, errors: 0\n  3832833 states, stored\n"
    assert protocol.read_report(whole) == (3832833, "")
    broken = "pan:1: assertion violated 0 (at depth 7)\nerrors: 1\n   54 states, stored\n"
    assert protocol.read_report(broken) == (54, "assertion violated 0")


def test_a_rule_that_is_unknown_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["DEDUPE"]) == 2
    assert "no rule is called DEDUPE; there are ACK_AFTER_ENQUEUE" in capsys.readouterr().out


def test_where_spin_is_missing_it_says_what_to_do(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(protocol.SearchFailed, match=r"spin is missing: run `.ci/setup spin`"):
        with_all(MODEL, 1, 0)
