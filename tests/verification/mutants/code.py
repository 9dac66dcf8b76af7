"""Damage the Python code, one place at a time, and see whether a test notices.

    make mutants ARGS="code"                          all; exit 1 where one lives that isn't listed
    make mutants ARGS="code --sample 300 --seed 1"    so many, drawn file by file
    make mutants ARGS="code --only flow/dispatcher.py"      those of a file or function
    make mutants ARGS="code --report FILE"            what became of each, as JSON Lines

What lives and may is listed in `left_code.toml`, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.verification.mutants.damages import damages
from tests.verification.mutants.places import Mutant, mutants_of
from tests.verification.mutants.trials import Fate, Trials

ROOT = Path(__file__).parents[3]
FOLDERS = ("flow", "store", "upkeep")
FIGURES = "groupflow/flow/counting.py"  # metrics alone
TESTS = ("tests/flow", "tests/store", "tests/upkeep", "tests/operate/test_bodies.py")
# They weigh the server's memory, or judge damaged scripts.
LEFT_OUT = (
    "tests/store/test_held_bytes.py",
    "tests/store/test_damaged_",
    "tests/store/test_bounds.py",
    "tests/operate/test_bodies.py::test_a_redrive_brings_back_no_more_than_there_is_room_for",
)
LEFT = Path(__file__).with_name("left_code.toml")
Key = tuple[str, str, str]


class Choice:
    """Which tests may kill. Those that run on Valkey too run the same Python there."""

    def __init__(self) -> None:
        self.redis = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            item
            for item in items
            if "valkey" not in item.nodeid and not item.nodeid.startswith(LEFT_OUT)
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        value = yield
        if fixturedef.argname == "redis_server":
            self.redis = value.url
        return value

    def empty(self) -> None:
        """No test finds what a mutant left."""
        with Redis.from_url(self.redis) as redis:
            redis.flushall()


def listed() -> dict[Key, dict[str, str]]:
    """Those that may live, with what is said of them."""
    with LEFT.open("rb") as file:
        found = tomllib.load(file).get("left", [])
    return {(each["path"], each["function"], each["change"]): each for each in found}


def all_mutants() -> list[Mutant]:
    """Of all files, in their order, those with a name first."""
    files = [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / "groupflow" / folder).glob("*.py"))
        if path != ROOT / FIGURES
    ]
    return [*damages(ROOT), *(each for path in files for each in mutants_of(path, ROOT))]


def drawn(mutants: Sequence[Mutant], number: int, seed: int) -> list[Mutant]:
    """So many of them, of each file its share, one at least."""
    by_file: dict[str, list[Mutant]] = defaultdict(list)
    for each in mutants:
        by_file[each.path].append(each)
    chance, chosen = random.Random(seed), list[Mutant]()
    for path in sorted(by_file):
        share = max(1, round(number * len(by_file[path]) / len(mutants)))
        chosen += chance.sample(by_file[path], min(share, len(by_file[path])))
    return chosen


def _table(fates: Sequence[Fate], may_live: dict[Key, dict[str, str]]) -> list[str]:
    """By file: how many there are, and what became of them."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for fate in fates:
        kind: str = fate.verdict
        if fate.is_alive:
            kind = may_live[fate.mutant.key]["kind"] if fate.mutant.key in may_live else "new"
        rows[fate.mutant.path][kind] += 1
    total = sum(rows.values(), Counter[str]())
    kinds = ("killed", "hung", "equivalent", "left", "new", "invalid")
    died, counted = total["killed"] + total["hung"], total.total() - total["equivalent"]
    return [
        f"| file | mutants | {' | '.join(kinds)} |",
        "|---" * (len(kinds) + 2) + "|",
        *(
            f"| {path} | {row.total()} | {' | '.join(str(row[kind]) for kind in kinds)} |"
            for path, row in [*sorted(rows.items()), ("together", total)]
        ),
        f"{100 * died / max(1, counted - total['invalid']):.1f} % of those not equivalent died",
    ]


def _wanted(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, not all")
    parser.add_argument("--seed", type=int, default=1, help="draws the sample")
    parser.add_argument(
        "--only", action="append", default=[], help="part of 'file function change'"
    )
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of tests for a mutant")
    parser.add_argument("--slack", type=float, default=5.0, help="seconds on top for each test")
    parser.add_argument("--report", type=Path, help="a file for what became of each, as JSON Lines")
    parser.add_argument("--again", type=Path, help="try those that live in such a file once more")
    return parser.parse_args(arguments)


def _chosen(wanted: argparse.Namespace) -> list[Mutant]:
    mutants = all_mutants()
    if wanted.only:
        mutants = [m for m in mutants if any(only in " ".join(m.key) for only in wanted.only)]
    if wanted.sample:
        mutants = drawn(mutants, wanted.sample, wanted.seed)
        random.Random(wanted.seed).shuffle(mutants)
    if wanted.again:
        lines = [json.loads(line) for line in wanted.again.read_text().splitlines()]
        alive = {tuple(line[:3]) for line in lines if line[3] in ("alive", "unseen")}
        mutants = [each for each in mutants if each.key in alive]
    return mutants


def _run(trials: Trials, choice: Choice) -> str:
    """Run pytest in silence. Returns what it would have said."""
    with tempfile.TemporaryFile("w+") as words:
        os.dup2(words.fileno(), 1)
        os.dup2(words.fileno(), 2)
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=no", *TESTS],
            plugins=[choice, trials],
        )
        words.seek(0)
        return words.read()[-20_000:]


def main(arguments: list[str]) -> int:
    """Run it. Returns the exit code: 1 where a mutant lives that isn't listed."""
    wanted, may_live = _wanted(arguments), listed()
    mutants = _chosen(wanted)
    stdout = os.fdopen(os.dup(1), "w", buffering=1)
    began, choice = time.monotonic(), Choice()

    def say(*lines: str) -> None:
        print(*lines, sep="\n", file=stdout)

    def tell(fate: Fate) -> None:
        path, function, change = fate.mutant.key
        if wanted.report:
            with wanted.report.open("a") as report:
                report.write(
                    json.dumps([*fate.mutant.key, fate.verdict, fate.seconds, fate.killer]) + "\n"
                )
        if fate.is_alive and fate.mutant.key not in may_live:
            say(f"{fate.verdict}: {path}:{fate.mutant.lines.start} {function}: {change}")

    trials = Trials(ROOT, mutants, choice.empty, tell, budget=wanted.budget, slack=wanted.slack)
    said = _run(trials, choice)
    say(*_table(trials.fates, may_live))
    took = time.monotonic() - began
    say(f"{took:.0f} s; the tests take {trials.seconds:.0f} s on sound code, while watched")
    if trials.broken or len(trials.fates) != len(mutants):
        say(said, *(f"fails on sound code: {test}" for test in trials.broken), "nothing is proved")
        return 1
    alive = {fate.mutant.key for fate in trials.fates if fate.is_alive}
    for key in sorted(may_live.keys() & {fate.mutant.key for fate in trials.fates} - alive):
        say(f"listed, but dead: {' '.join(key)}")
    return 1 if alive - may_live.keys() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
