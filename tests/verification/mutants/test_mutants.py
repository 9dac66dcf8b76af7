"""What is changed in each language, what becomes of it, and a sample of the product's mutants."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.programs import must
from tests.verification.mutants import lua
from tests.verification.mutants.__main__ import wanting
from tests.verification.mutants.trials import ROOT, Fate, Mutant

DOOR = """
import logging
from contextlib import contextmanager
log = logging.getLogger()
class Door:
    @contextmanager
    def held(self):
        log.info("%s is held", 1 + 1)
        self.open = True
        try:
            yield
        finally:
            self.open = False
    async def count(self, people):
        while people < 9 or self.open:
            break
        return people + 1
    def knock(self):
        raise ValueError(f"{1 + 1} knocks")
"""
TESTS = """
import asyncio
from door import Door

def test_held():
    door = Door()
    with door.held():
        assert door.open
    assert not door.open

def test_count():
    assert asyncio.run(Door().count(3)) == 4

def test_that_is_wrong():
    assert Door().knock() == 3
"""
FATES = """
killed: self.open = True -> pass
killed: True -> False
killed: try: finally: self.open = False -> if True:
killed: self.open = False -> pass
killed: False -> True
killed: people < 9 or self.open -> self.open
alive: people < 9 or self.open -> people < 9
killed: people < 9 -> people >= 9
alive: people < 9 -> people <= 9
alive: 9 -> 10
hung: break -> pass
killed: people + 1 -> people - 1
killed: 1 -> 2
unseen: raise ValueError(f'{1 + 1} knocks') -> pass
test_door.py::test_that_is_wrong
"""
RUN = """
import os, sys
from pathlib import Path
import pytest
from tests.verification.mutants import python
from tests.verification.mutants.trials import Trials

door = Path("groupflow/hall/door.py").absolute()
sys.path.insert(0, str(door.parent))
said = os.fdopen(os.dup(1), "w")
def tell(fate):
    print(f"{fate.verdict}: {fate.mutant.change.partition(': ')[2]}", file=said)
trials = Trials(python.mutants_of(door, Path.cwd()), python.watch, tell)
os.dup2(2, 1)
pytest.main(["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "."], [trials])
print(*trials.left_out, file=said)
"""


def said_by(folder: Path, *arguments: str) -> str:
    """What a program of Python says."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return must(sys.executable, *arguments, folder=folder, env=variables)


def test_what_becomes_of_python(tmp_path: Path) -> None:
    """Also of decorated and async functions; no text, no log, nothing of what an error says.

    A test that fails on the sound product proves nothing.
    """
    hall = tmp_path / "groupflow" / "hall"
    hall.mkdir(parents=True)
    (hall / "door.py").write_text(DOOR)
    (tmp_path / "test_door.py").write_text(TESTS)
    assert said_by(tmp_path, "-c", RUN).strip() == FATES.strip()


@pytest.mark.parametrize("texts", [
    "if f(a).b[1] then c = 1 end; if true then c = 1 end; if false then c = 1 end",
    "while #x < n do f = 2 end; while true do f = 2 end; while false do f = 2 end;"
    " while #x <= n do f = 2 end",
    "if a then elseif b then end; if true then elseif b then end;"
    " if false then elseif b then end; if a then elseif true then end;"
    " if a then elseif false then end",
    "return a >= b; return a < b; return a > b",
    "return a ~= b, c == d; return a == b, c == d; return a ~= b, c ~= d",
    "x = a and f(b or c) or not d; x = f(b or c) or not d; x = a or not d; x = a and not d;"
    " x = a and f( c) or not d; x = a and f(b ) or not d; x = a and f(b or c);"
    " x = a and f(b or c) or d",
    "return function(a) return a[1] and -c end; return function(a) return -c end;"
    " return function(a) return a[1] end",
    "x = f(1) t[g()] = 2 wake() b.c('x') return h(); x = f(1) t[g()] = 2 b.c('x') return h();"
    " x = f(1) t[g()] = 2 wake() return h(); x = f(1) t[g()] = 2 wake() b.c('x') return nil",
    "#!lua if not x\n-- a and b\n--[[ a == b ]] local x = 'a and b' .. [[not c]] .. \"<\"",
])  # fmt: skip
def test_what_is_changed_in_lua(texts: str) -> None:
    """The first text becomes the others, and no others."""
    script, *becomes = texts.split("; ")
    found = [" ".join(text.split()) for text in lua.changed(script)]
    assert sorted(found) == sorted(" ".join(text.split()) for text in becomes)


@pytest.mark.parametrize(("alive", "said"), [(2, 0), (3, 1), (10, 1)])
def test_too_many_that_live_are_said(alive: int, said: int) -> None:
    """Nine of ten must die, and one of them may live by chance."""
    mutant = Mutant("groupflow/store/x.py", 1, "a -> b", frozenset(), lambda: None)
    fates = [Fate(mutant, "alive" if n < alive else "killed") for n in range(10)]
    assert len(wanting(fates, {"store": 0.9, "flow": 0.9})) == said


@pytest.mark.timeout(600)
def test_of_a_sample_of_the_product_enough_are_noticed() -> None:
    asked = ["-m", "tests.verification.mutants", "scripts", "failing", "--sample", "4"]
    assert "together: 4 mutants" in said_by(ROOT, *asked)
