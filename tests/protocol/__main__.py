"""`make model`: searches the model of the protocol (protocol.pml), with all rules and without each.

    make model                    all of it
    make model ARGS="LEASE HELD"  without these rules, one at a time

With all rules each history is searched, and none may break a condition, end before each task has
ended, or never end. Without a rule some history has to break the condition that stands beside the
rule; the shortest one is told, as the model itself tells it. Exit code: 0, 1 where any of this is
not so, 2 where a rule is unknown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from time import monotonic

MODEL = Path(__file__).with_name("protocol.pml")
FAULTS = 2  # that go wrong in one history at most
WINDOWS = (1, 2)  # tasks of a claim at most
LIMIT = 1800  # seconds for one search
COMMON = ("-O2", "-w", "-DNOREDUCE", "-DMEMLIM=8000")  # each step touches what all share

_RULE = re.compile(r"^#define ([A-Z_]+) \d+ +/\* ([SL]\d+): (.*) \*/$", re.MULTILINE)
_CUT_SHORT = re.compile(r"Search not completed|max search depth too small|out of memory|resized")


class SearchFailed(Exception):
    """A search did not run to its end; the text says why."""


@dataclass(frozen=True)
class Rule:
    """A rule of the protocol, and the condition that breaks without it."""

    name: str
    condition: str
    text: str


@dataclass(frozen=True)
class Found:
    """What a search found: how many states, and what pan calls the error, '' for none."""

    states: int
    error: str
    story: tuple[str, ...]
    """The history that leads to the error, a line a step."""

    @property
    def broken(self) -> str:
        """The condition that the story breaks, such as `S3`; '' for none."""
        last = self.story[-1] if self.story else ""
        return last.split(":")[1].strip() if last.startswith("broken: ") else ""


@dataclass(frozen=True)
class Verdict:
    """One line of the report, the story below it, and whether that is as it should be."""

    is_good: bool
    line: str
    story: tuple[str, ...] = ()


def rules_of(model: Path) -> dict[str, Rule]:
    """The rules that a model names, by name."""
    return {found[0]: Rule(*found) for found in _RULE.findall(model.read_text())}


def read_report(said: str) -> tuple[int, str]:
    """How many states pan stored, and the error it met; raises SearchFailed where it gave up."""
    states = re.search(r"(\d+) states, stored", said)
    error = re.search(r"^pan:\d+: (.*?)(?: \(at depth \d+\))?$", said, re.MULTILINE)
    if states is None or (error is None and ("errors: 0" not in said or _CUT_SHORT.search(said))):
        raise SearchFailed(f"pan has not searched everything: {said.strip()[-1000:]}")
    return int(states[1]), error[1] if error else ""


def read_story(said: str) -> tuple[str, ...]:
    """What the model told along a trail, a line a step, up to the condition that breaks."""
    lines: list[str] = []
    for line in said.splitlines():
        if line.strip() and not line.startswith("spin: "):
            lines.append(line.strip().rstrip(","))
        if line.startswith("broken: "):
            break
    return tuple(lines)


def run(folder: str, *command: str) -> str:
    """What a command says; raises SearchFailed where it is missing, or not over in time."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except FileNotFoundError as error:
        raise SearchFailed(f"{error.filename} is missing: run `.ci/setup spin`") from None
    except subprocess.TimeoutExpired:
        raise SearchFailed(f"{command[0]} ran for {LIMIT} s") from None
    return done.stdout + done.stderr


def search(
    model: Path, window: int, faults: int, kind: Sequence[str], *options: str, rule: str = "0"
) -> Found:
    """Searches a model without a rule; `kind` and `options` are pan's. Raises SearchFailed."""
    macros = [f"-DWITHOUT={rule}", f"-DWINDOW={window}", f"-DFAULTS={faults}"]
    with tempfile.TemporaryDirectory(prefix="groupflow-model-") as folder:
        made = run(folder, "spin", "-a", *macros, str(model))
        if not Path(folder, "pan.c").exists() or "Error" in made:
            raise SearchFailed(f"spin refused {model.name}: {made.strip()}")
        said = run(folder, "gcc", *COMMON, *kind, "-o", "pan", "pan.c")
        if not Path(folder, "pan").exists():
            raise SearchFailed(f"gcc refused what spin made: {said.strip()}")
        states, error = read_report(run(folder, "./pan", *options))
        trail = Path(folder, model.name + ".trail")
        if not trail.exists():
            return Found(states, error, ())
        told = run(folder, "spin", "-T", "-B", "-t", "-k", trail.name, *macros, str(model))
        return Found(states, error, read_story(told))


def with_all(model: Path, window: int, faults: int) -> Verdict:
    """Each history keeps all conditions, and stops only once each task has ended."""
    found = search(model, window, faults, ["-DSAFETY"], "-m10000", "-w24")
    return _whole(found, window, faults, "each condition holds")


def ends(model: Path, window: int, faults: int) -> Verdict:
    """No history goes on for ever: there is no cycle at all."""
    found = search(model, window, faults, ["-DNP"], "-l", "-m10000", "-w24")
    return _whole(found, window, faults, "each history ends")


def _whole(found: Found, window: int, faults: int, holds: str) -> Verdict:
    line = f"all rules, window {window}, {faults} faults: {found.states:,} states"
    if found.error:
        return Verdict(False, f"{line}; BROKEN: {found.error}", found.story)
    return Verdict(True, f"{line}, {holds}")


def without(model: Path, rule: Rule) -> Verdict:
    """The rule's condition breaks: in the shortest history of those with the fewest faults."""
    line = f"without {rule.name} ({rule.condition}: {rule.text})"
    for faults in range(FAULTS + 1):
        found = search(model, max(WINDOWS), faults, ["-DSAFETY", "-DBFS"], rule=rule.name)
        if found.error and found.broken == rule.condition:
            return Verdict(True, f"{line}: {found.states:,} states", found.story)
        if found.error:
            broken = f"BROKEN: {found.broken or found.error} breaks, not {rule.condition}"
            return Verdict(False, f"{line}: {broken}", found.story)
    return Verdict(False, f"{line}: BROKEN: all conditions hold without it, so it is no rule")


def plan(model: Path, names: Sequence[str]) -> Iterator[Callable[[], Verdict]]:
    """The searches, in the order of the report: without the rules named, or all there are."""
    rules = rules_of(model)
    if not names:
        for window, faults in product(WINDOWS, range(FAULTS + 1)):
            yield partial(with_all, model, window, faults)
        for faults in range(FAULTS + 1):
            yield partial(ends, model, max(WINDOWS), faults)
    for name in names or rules:
        yield partial(without, model, rules[name])


def main(names: Sequence[str], model: Path = MODEL) -> int:
    """Run the searches and print what they found. Returns the exit code."""
    if unknown := [name for name in names if name not in rules_of(model)]:
        print(f"no rule is called {unknown[0]}; there are {', '.join(rules_of(model))}")
        return 2
    began, bad = monotonic(), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        searches: list[Future[Verdict]] = [pool.submit(each) for each in plan(model, names)]
        for each in searches:
            try:
                verdict = each.result()
            except SearchFailed as error:
                verdict = Verdict(False, f"BROKEN: {error}")
            bad += not verdict.is_good
            print(verdict.line, *(f"    {line}" for line in verdict.story), sep="\n", flush=True)
    print(
        f"model: {len(searches)} searches, {bad} not as they should be, {monotonic() - began:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
