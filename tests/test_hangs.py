"""No test can hang the suite: a wait without an end is ended and named, and the rest goes on."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


# Programs, each with times of its own.
PROGRAMS = ("bench", "crash", "simulation", "soak", "verification")
LONG = 5  # seconds; a shorter time is meant to be over
WAITS = ("asyncio.timeout", "asyncio.wait_for", "subprocess.run", "connect")


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Where tests call something that may wait, and what, be it handed to `asyncio.to_thread`."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name == "__main__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                named = [ast.unparse(each) for each in (node.func, *node.args[:1])]
                where = f"{path.relative_to(ROOT / 'tests')}:{node.lineno}"
                found += [
                    (where, name, node)
                    for name in named
                    if name in WAITS or name.startswith("httpx.")
                ]
    return found


def test_every_child_has_its_time() -> None:
    """A `subprocess.run` without a timeout waits for ever; the programs of `make` may."""
    assert [
        where
        for where, name, call in calls()
        if name == "subprocess.run" and not any(each.arg == "timeout" for each in call.keywords)
    ] == []


def test_nothing_waits_by_a_time_of_its_own() -> None:
    """`tests/deadlines.py` says how long tests wait for what must happen."""
    found = []
    for where, name, call in calls():
        if where.split("/")[0] in PROGRAMS:
            continue
        times = [each.value for each in call.keywords if each.arg == "timeout"]
        times += call.args if name.startswith("asyncio.") else []
        long = [each.value for each in times if isinstance(each, ast.Constant)]
        if any(isinstance(each, float | int) and each >= LONG for each in long):
            found.append(where)
    assert found == []
