"""The mutants of the Python code: where a module can be wrong, and its wrong code.

Only what functions do is changed. Left out are texts (they are no condition and no effect; a
message on which no code acts may say anything), what is logged, what an error says, metrics,
assertions (they narrow types), crash points (they exist for tests), annotations, decorators,
defaults and constants of modules and classes (figures that were chosen; they are in place before a
test begins).
"""

from __future__ import annotations

import ast
import gc
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import NamedTuple

from tests.verification.mutants.python_operators import changes
from tests.verification.mutants.trials import ROOT, Mutant

TESTS = ("tests/flow", "tests/store", "tests/upkeep")
LEAST = {"flow": 0.7, "store": 0.65, "upkeep": 0.7}
_METRICS = "groupflow/flow/counting.py"
_SAYS = {"log", "crash_point", "count_exchange", "count_batch"}
_FIGURES = {"measures", "_measures", "observe"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign)
_SHOWN = 90  # characters of what is changed


class _Place(NamedTuple):
    """A node, the function that it is in, and its line."""

    node: ast.AST
    function: str
    line: int


def mutants() -> list[Mutant]:
    """All mutants of the packages, file by file."""
    files = [path for each in LEAST for path in sorted((ROOT / "groupflow" / each).glob("*.py"))]
    return [each for path in files if path != ROOT / _METRICS for each in mutants_of(path, ROOT)]


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """All mutants of a file, in the order of their places."""
    name, found = path.relative_to(root).as_posix(), list[Mutant]()
    for number, (place, changed) in enumerate(_all_changes(ast.parse(path.read_text()))):
        change = f"{place.function}: {_change(place.node, changed)}"
        marks = frozenset([f"{path}:{place.function}"])
        wrong = partial(put_in, path, place.function, number)
        found.append(Mutant(name, place.line, change, marks, wrong))
    return found


def put_in(path: Path, function: str, number: int) -> None:
    """From now on a function has one change in this process, also where decorators wrap it.

    Args:
        path: of its file.
        function: at the top of its module or class.
        number: of the change, among all of this file.
    """
    tree = ast.parse(path.read_text())
    place, changed = next(islice(_all_changes(tree), number, None))
    _Put(place.node, changed).visit(tree)
    code = _code_of(function, compile(ast.fix_missing_locations(tree), str(path), "exec"))
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            there = each.__code__
            if (there.co_filename, there.co_qualname) == (code.co_filename, function):
                each.__code__ = code


def watch(marks: Iterable[str]) -> set[str]:
    """Those of some marks, functions of files, that this process comes to from now on."""
    wanted = set(marks)
    files = {mark.rpartition(":")[0] for mark in wanted}
    seen: set[str] = set()

    def calls(frame: FrameType, event: str, arg: object) -> None:
        if (code := frame.f_code).co_filename in files:
            seen.add(f"{code.co_filename}:{code.co_qualname}")

    threading.settrace(calls)
    sys.settrace(calls)
    return seen


class _Put(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, node: ast.AST, changed: ast.AST) -> None:
        self._node, self._changed = node, ast.copy_location(changed, node)

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._node:
            return self._changed
        self.generic_visit(node)
        return node


def _code_of(function: str, module: CodeType) -> CodeType:
    for each in module.co_consts:
        if isinstance(each, CodeType):
            if each.co_qualname == function:
                return each
            if function.startswith(f"{each.co_qualname}."):
                return _code_of(function, each)
    raise LookupError(f"{function} is not in {module.co_filename}")


def _all_changes(tree: ast.Module) -> Iterator[tuple[_Place, ast.AST]]:
    for place in list(_places(tree.body, "")):
        # Without its attributes no object works: to see that proves nothing.
        is_made = place.function.endswith("__init__") and isinstance(place.node, _ASSIGNMENTS)
        for changed in changes(place.node):
            if not (is_made and isinstance(changed, ast.Pass)):
                yield place, changed


def _places(body: list[ast.stmt], outer: str) -> Iterator[_Place]:
    for each in body:
        if isinstance(each, ast.ClassDef):
            yield from _places(each.body, f"{outer}{each.name}.")
        elif isinstance(each, _FUNCTIONS) and each.name != "__repr__":
            for statement in each.body:
                yield from _within(_Place(statement, f"{outer}{each.name}", statement.lineno))


def _within(place: _Place) -> Iterator[_Place]:
    """A place and all below it."""
    node = place.node
    if _is_left_out(node):
        return
    place = place._replace(line=getattr(node, "lineno", place.line))
    yield place
    if isinstance(node, ast.Raise):
        return
    is_defined = isinstance(node, (*_FUNCTIONS, ast.AnnAssign, ast.Lambda))
    for name, value in ast.iter_fields(node):
        if is_defined and name in {"annotation", "returns", "decorator_list", "args"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _within(place._replace(node=child))


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.Expr(value=ast.Constant()):
            return True
        case (
            ast.Expr(value=ast.Call(func=told))
            | ast.AugAssign(target=told)
            | ast.Assign(targets=[ast.Attribute() as told])
        ):
            names = set(ast.unparse(told).split("."))
            return bool(names & _FIGURES) or ast.unparse(told).split(".")[0] in _SAYS
    return False


def _change(before: ast.AST, after: ast.AST) -> str:
    """The lines that a change takes away, and those that it brings."""
    old, new = (ast.unparse(node).strip().splitlines() for node in (before, after))
    gone = [line.strip() for line in old if line not in new]
    come = [line.strip() for line in new if line not in old]
    return " -> ".join(" ".join(lines)[:_SHOWN] or "nothing" for lines in (gone, come))
