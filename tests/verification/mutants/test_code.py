"""The tester of the Python code, on a small module: what it damages, and what it says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import deadline
from tests.verification.mutants.code import ROOT, all_mutants, drawn, listed
from tests.verification.mutants.places import mutants_of

DOOR = '''
"""A door."""
import logging
from contextlib import contextmanager

log = logging.getLogger()
GROWN_UP = 18

class Door:
    def __init__(self, price: int = 3) -> None:
        self.open = False
        self.price = price

    def admits(self, age: int, is_member: bool) -> bool:
        if age < GROWN_UP:
            log.info("%s is too young", age)
            return False
        return is_member or self.price == 0

    @property
    def is_free(self) -> bool:
        return not self.price

    @contextmanager
    def held(self):
        self.open = True
        try:
            yield
        finally:
            self.open = False

    async def count(self, people: int) -> int:
        counted = 0
        while people:
            people -= 1
            counted += 1
        return counted

    def knock(self) -> None:
        raise ValueError(f"{1 + 1} knocks, and nobody hears them")
'''
TESTS = """
import asyncio
from door import Door

def test_children_stay_out():
    assert not Door().admits(3, True)

def test_grown_ups_come_in():
    assert Door().admits(30, True)
    assert not Door().admits(30, False)

def test_free():
    assert Door(0).is_free

def test_held():
    door = Door()
    with door.held():
        assert door.open
    assert not door.open

def test_count():
    assert asyncio.run(Door().count(3)) == 3
"""
RUN = """
import json, os, sys
from pathlib import Path
import pytest
from tests.verification.mutants.places import mutants_of
from tests.verification.mutants.trials import Trials

here = Path.cwd()
fates = {}
def tell(fate):
    fates[f"{fate.mutant.function}: {fate.mutant.change}"] = fate.verdict
trials = Trials(here, mutants_of(here / "door.py", here), lambda: None, tell, slack=1.0)
said = os.dup(1)
os.dup2(2, 1)
pytest.main(["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "."], [trials])
os.write(said, json.dumps([fates, trials.broken]).encode())
"""


@pytest.fixture
def door(tmp_path: Path) -> Path:
    """A folder with the module and its tests."""
    (tmp_path / "door.py").write_text(DOOR)
    (tmp_path / "test_door.py").write_text(TESTS)
    return tmp_path


def _tried(folder: Path) -> tuple[dict[str, str], list[str]]:
    process = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT}:{folder}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=deadline(),
        check=False,
    )
    assert process.returncode == 0, process.stderr
    fates, broken = json.loads(process.stdout)
    return fates, broken


def test_what_is_damaged(door: Path) -> None:
    """Conditions and effects; no text, no log, no default, nothing of what an error says."""
    found = [f"{each.function}: {each.change}" for each in mutants_of(door / "door.py", door)]
    assert found == [
        "Door.__init__: False -> True",
        "Door.admits: age < GROWN_UP -> age >= GROWN_UP",
        "Door.admits: age < GROWN_UP -> age <= GROWN_UP",
        "Door.admits: False -> True",
        "Door.admits: is_member or self.price == 0 -> self.price == 0",
        "Door.admits: is_member or self.price == 0 -> is_member",
        "Door.admits: self.price == 0 -> self.price != 0",
        "Door.admits: 0 -> 1",
        "Door.is_free: not self.price -> self.price",
        "Door.held: self.open = True -> pass",
        "Door.held: True -> False",
        "Door.held: try, except nothing, finally -> if True:",
        "Door.held: self.open = False -> pass",
        "Door.held: False -> True",
        "Door.count: 0 -> 1",
        "Door.count: while people: -> while not people:",
        "Door.count: people -= 1 -> pass",
        "Door.count: people -= 1 -> people += 1",
        "Door.count: 1 -> 2",
        "Door.count: counted += 1 -> pass",
        "Door.count: counted += 1 -> counted -= 1",
        "Door.count: 1 -> 2 (2)",
        "Door.knock: raise ValueError(f'{1 + 1} knocks, and nobody hears them') -> pass",
    ]


def test_each_has_its_verdict(door: Path) -> None:
    """Also in decorated and async functions, and in those that never end."""
    fates, broken = _tried(door)
    assert broken == []
    assert fates["Door.admits: age < GROWN_UP -> age >= GROWN_UP"] == "killed"
    assert fates["Door.admits: age < GROWN_UP -> age <= GROWN_UP"] == "alive"
    assert fates["Door.admits: is_member or self.price == 0 -> is_member"] == "alive"
    assert fates["Door.is_free: not self.price -> self.price"] == "killed"
    assert fates["Door.held: self.open = False -> pass"] == "killed"
    assert fates["Door.count: counted += 1 -> pass"] == "killed"
    assert fates["Door.count: people -= 1 -> pass"] == "hung"
    assert [name for name, fate in fates.items() if fate == "unseen"] == [
        "Door.knock: raise ValueError(f'{1 + 1} knocks, and nobody hears them') -> pass"
    ]


def test_tests_that_fail_on_sound_code_prove_nothing(door: Path) -> None:
    (door / "test_more.py").write_text("def test_it():\n    assert False\n")
    fates, broken = _tried(door)
    assert fates == {}
    assert broken == ["test_more.py::test_it"]


def test_the_list_names_mutants_that_are_there() -> None:
    """Each with a reason: a line that went, or was mended, goes from the list too."""
    known = {each.key for each in all_mutants()}
    assert [key for key in listed() if key not in known] == []
    assert {each["kind"] for each in listed().values()} <= {"equivalent", "left"}
    assert all(each["reason"] for each in listed().values())


def test_a_sample_has_its_share_of_each_file() -> None:
    """The same seed draws the same one."""
    mutants = all_mutants()
    sample = drawn(mutants, 300, seed=1)
    assert sample == drawn(mutants, 300, seed=1) != drawn(mutants, 300, seed=2)
    assert {each.path for each in sample} == {each.path for each in mutants}
    assert 280 <= len(sample) <= 320
