"""`python -m tests.verification.mutants scripts`: the Lua scripts damaged in one place at a time.

Each mutant is tried on the tests that make the script it is in, the likeliest and quickest first,
until one fails. Those that no test can kill are listed in `left_scripts.toml`, with the reason; the
exit is 1 where one survives that isn't there, or one is there that is killed, or is none any more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import hypothesis
import pytest

from groupflow.store.scripts import Verb, read_lua
from tests.verification.mutants.lua_mutants import Mutant, mutants_of
from tests.verification.mutants.scripts_left import LISTED, Left, read_left
from tests.verification.mutants.scripts_trials import Trials, Verdict

ROOT = Path(__file__).parents[3]
TESTS = ("tests/store", "tests/operate")
LONGEST = 1.0  # seconds of a test that is tried
FILES = sorted({file for verb in Verb for file in (verb.file, *verb.rules)})
_OPTIONS = ("--assert=plain", "-s", "-q", "--no-header", "--no-summary")
_WITHOUT = ("-p", "no:cacheprovider", "-p", "no:xdist")


def main(arguments: Sequence[str]) -> int:
    """Try the mutants that were asked for."""
    options = _options(arguments)
    mutants = [mutant for file in options.files for mutant in mutants_of(file, read_lua(file))]
    if options.number:
        mutants = [mutants[int(number)] for number in options.number]
    if options.again:
        rows = map(json.loads, options.again.read_text().splitlines())
        lived = {tuple(row["key"]) for row in rows if row["how"] == "survived"}
        mutants = [mutant for mutant in mutants if mutant.key in lived]
    if options.sample:
        picked = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
        mutants = [mutant for mutant in mutants if mutant in picked]
    if options.list:
        for mutant in mutants:
            print(_described(mutant))
        return 0
    began = time.monotonic()
    trials = run(mutants, options.tests, options.longest, options.report)
    if trials.problem:
        print(trials.problem, file=sys.stderr)
        return 2
    seconds = time.monotonic() - began
    print(f"{len(mutants)} mutants, {seconds:.0f} s: {_counted(trials.verdicts)}")
    is_part = options.number or options.again or options.sample or options.narrow
    whole = len(options.files) == len(FILES) and not is_part
    return judge(trials.verdicts, read_left(), whole=whole)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.verification.mutants scripts", description=__doc__
    )
    parser.add_argument("files", nargs="*", default=FILES, metavar="FILE", help="store/claiming …")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="that may kill")
    parser.add_argument("--number", nargs="+", help="of the mutants that --list shows, these")
    parser.add_argument("--again", type=Path, help="of a report of --report, what survived")
    parser.add_argument("--sample", type=int, default=0, help="so many of the mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--list", action="store_true", help="show the mutants, try none")
    parser.add_argument("--report", type=Path, help="add the verdicts to this file (JSON Lines)")
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds of such a test")
    options = parser.parse_args(arguments)
    options.narrow = options.tests is not TESTS or options.longest < LONGEST
    return options


def run(
    mutants: Sequence[Mutant],
    tests: Sequence[str],
    longest: float = LONGEST,
    report: Path | None = None,
) -> Trials:
    """Try mutants on tests, and say of each at once what became of it.

    Args:
        mutants: the scripts that are wrong.
        tests: files, folders or node ids, as pytest takes them.
        longest: seconds that a test takes at most, if it is to be tried.
        report: where a line of JSON for each verdict goes too.
    """
    # A model that is the same at each run, and a failure that is told as it is.
    phases = [hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutants", database=None, derandomize=True, phases=phases)
    hypothesis.settings.load_profile("mutants")
    os.chdir(ROOT)
    number = iter(range(1, len(mutants) + 1))

    def told(verdict: Verdict) -> None:
        where = f"{next(number)}/{len(mutants)}"
        print(f"{where} {verdict.how}: {_described(verdict.mutant)}  [{verdict.by}]", flush=True)
        if report is not None:
            _write(report, verdict)

    trials = Trials(mutants, told, longest)
    pytest.main([*tests, *_OPTIONS, *_WITHOUT], plugins=[trials])
    return trials


def _described(mutant: Mutant) -> str:
    shown = mutant.becomes or f"({mutant.line})"
    return f"{mutant.file}:{mutant.number} {mutant.what} | {shown}"


def _write(path: Path, verdict: Verdict) -> None:
    mutant = verdict.mutant
    row = {"how": verdict.how, "by": verdict.by, "tests": verdict.tests, "key": mutant.key}
    row |= {"number": mutant.number, "what": mutant.what}
    with path.open("a") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _counted(verdicts: Sequence[Verdict]) -> str:
    how = Counter(verdict.how for verdict in verdicts)
    return ", ".join(f"{number} {name}" for name, number in how.most_common())


def judge(verdicts: Sequence[Verdict], left: Sequence[Left], *, whole: bool) -> int:
    """Say what is new, and what the list has that isn't so any more."""
    listed = {each.key for each in left}
    survived = {verdict.mutant.key for verdict in verdicts if verdict.how == "survived"}
    new = [v for v in verdicts if v.how == "survived" and v.mutant.key not in listed]
    tried = {verdict.mutant.key for verdict in verdicts}
    wrong = listed & (tried - survived)
    if whole:
        wrong |= listed - tried
    for verdict in new:
        print(f"survives: {_described(verdict.mutant)}")
    for file, line, becomes, nth in sorted(wrong):
        print(f"in {LISTED.name}, and no survivor: {file}: {line!r} as {becomes!r} ({nth})")
    return 1 if new or wrong else 0
