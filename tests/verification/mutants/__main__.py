"""Make the product wrong in one place at a time, and see whether a test notices.

    make mutants ARGS="scripts failing"         the Lua scripts: all mutants of failing.lua
    make mutants ARGS="code dispatcher"         the Python code: all mutants of dispatcher.py
    make mutants ARGS="scripts --sample 40"     some of all, of each file its share

Each mutant that no test notices is printed. Either a test is missing, or the mutant behaves like
the product, which a reader has to judge. The exit code is 1 where in a package fewer are noticed
than its language's `LEAST` says.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import sqrt
from types import ModuleType

import pytest

from tests.verification.mutants import lua, python
from tests.verification.mutants.trials import ROOT, Fate, Mutant, Trials

# What each says: its mutants; which tests may kill; by package, the share that must be noticed.
LANGUAGES: dict[str, ModuleType] = {"scripts": lua, "code": python}
_OPTIONS = "--assert=plain -s -q --no-header --no-summary -p no:xdist"


def main(arguments: Sequence[str]) -> int:
    """Try the mutants that were asked for. Returns the exit code."""
    asked = _asked(arguments)
    language = LANGUAGES[asked.part]
    mutants = chosen(language.mutants(), asked.words, asked.sample)
    if asked.list:
        print(*mutants, sep="\n")
        return 0
    began, number = time.monotonic(), iter(range(1, len(mutants) + 1))

    def tell(fate: Fate) -> None:
        by = f"  [{fate.killer}]" if fate.killer else ""
        print(f"{next(number)}/{len(mutants)} {fate.verdict}: {fate.mutant}{by}", flush=True)

    trials = Trials(mutants, language.watch, tell)
    os.chdir(ROOT)
    pytest.main([*language.TESTS, *_OPTIONS.split(), "--hypothesis-seed=0"], plugins=[trials])
    if len(trials.fates) < len(mutants):
        print("the tests can't be collected", file=sys.stderr)
        return 2
    print(*report(trials.fates), f"{time.monotonic() - began:.0f} s", sep="\n")
    print(*(f"fails on the sound product: {test}" for test in trials.left_out), sep="\n")
    missing = wanting(trials.fates, language.LEAST)
    print(*missing, sep="\n")
    return 1 if missing else 0


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "make mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=LANGUAGES)
    parser.add_argument("words", nargs="*", help="only those that --list shows with all of these")
    parser.add_argument("--list", action="store_true", help="show the mutants, try none")
    parser.add_argument("--sample", type=int, default=0, help="so many, of each file its share")
    return parser.parse_args(arguments)


def chosen(mutants: Sequence[Mutant], words: Sequence[str], sample: int) -> list[Mutant]:
    """The mutants whose line has all words; of these each n-th, if a sample is asked for."""
    found = [each for each in mutants if all(word in str(each) for word in words)]
    most = min(sample or len(found), len(found))
    return [found[n * len(found) // most] for n in range(most)]


def report(fates: Sequence[Fate]) -> list[str]:
    """What lives, and by file what became of all."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for fate in fates:
        rows[fate.mutant.path][fate.verdict] += 1
    rows["together"] = sum(rows.values(), Counter())
    return [
        *(f"lives: {fate.mutant}" for fate in fates if fate.is_alive),
        *(f"{path}: {row.total()} mutants, {dict(row)}" for path, row in rows.items()),
    ]


def wanting(fates: Sequence[Fate], least: dict[str, float]) -> list[str]:
    """The packages of whose mutants too few were noticed.

    Few mutants may be worse by chance: by two standard deviations.
    """
    found = []
    for package, share in least.items():
        lives = [each.is_alive for each in fates if each.mutant.package == package]
        tried, chance = len(lives), 2 * sqrt(len(lives) * share * (1 - share))
        if (noticed := tried - sum(lives)) < share * tried - chance:
            found.append(f"{package}: {noticed} of {tried} were noticed, {share:.0%} must be")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
