"""Where a module can be damaged, and the damaged code.

Only what functions do is damaged. Left out are texts (they are no condition and no effect; a
message that nobody acts on may say anything), what is logged, what an error says, metrics,
assertions (they narrow types), crash points (they exist for tests), annotations, decorators,
defaults and constants of modules and classes (figures that were chosen; they are in place before a
test begins).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import CodeType

from tests.verification.mutants.operators import changes

_SAYS = {"log", "crash_point", "count_exchange", "count_batch"}
_FIGURES = {"measures", "_measures", "observe"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign)
_SHOWN = 90  # characters of a changed piece of code


@dataclass(frozen=True, slots=True)
class Mutant:
    """One damage.

    Attributes:
        path: of the file, from the root of the tree.
        function: the one that is damaged: at the top of its module or class.
        change: what was there, and what is there now; with a number where that occurs again.
        number: among all changes of this file.
        lines: a test that never comes here can't see it.
        texts: where no operator does it: what stands in the file, once, and what in its place.
    """

    path: str
    function: str
    change: str
    number: int
    lines: range
    texts: tuple[str, str] | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Names it also when lines have moved."""
        return self.path, self.function, self.change


@dataclass(frozen=True, slots=True)
class _Place:
    """A node, and where it hangs."""

    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    function: str
    lines: range

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """All mutants of a file."""
    name, found, seen = (
        path.relative_to(root).as_posix(),
        list[Mutant](),
        Counter[tuple[str, str]](),
    )
    for number, (place, changed) in enumerate(_all_changes(ast.parse(path.read_text()))):
        change = f"{_text(place.node)} -> {_text(changed)}"
        seen[place.function, change] += 1
        if (nth := seen[place.function, change]) > 1:
            change += f" ({nth})"
        found.append(Mutant(name, place.function, change, number, place.lines))
    return found


def named(path: Path, root: Path, function: str, before: str, after: str) -> Mutant:
    """A mutant that is told by its texts.

    Raises:
        LookupError: the file doesn't say that, or more than once.
    """
    text = path.read_text()
    if text.count(before) != 1:
        raise LookupError(f"{path} has {text.count(before)} times: {before}")
    start = text[: text.index(before)].count("\n") + 1
    lines = range(start, start + before.count("\n") + 1)
    change = " ".join(f"{before} -> {after}".split())
    return Mutant(path.relative_to(root).as_posix(), function, change, -1, lines, (before, after))


def damaged(mutant: Mutant, root: Path) -> CodeType:
    """The code of the damaged function."""
    path = root / mutant.path
    text = path.read_text()
    if mutant.texts is not None:
        tree = ast.parse(text.replace(*mutant.texts))
    else:
        tree = ast.parse(text)
        place, changed = next(islice(_all_changes(tree), mutant.number, None))
        place.put(ast.copy_location(changed, place.node))
    return function_in(compile(ast.fix_missing_locations(tree), str(path), "exec"), mutant.function)


def function_in(code: CodeType, name: str) -> CodeType:
    """A function's code in that of its module."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_qualname == name:
                return each
            if name.startswith(f"{each.co_qualname}."):
                return function_in(each, name)
    raise LookupError(f"{name} is not in {code.co_filename}")


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
            for n, statement in enumerate(each.body):
                function = f"{outer}{each.name}"
                yield from _within(_Place(each, "body", n, statement, function, range(0)))


def _within(place: _Place) -> Iterator[_Place]:
    """A place and all below it."""
    node = place.node
    if _is_left_out(node):
        return
    if isinstance(node, ast.stmt):
        place = replace(place, lines=_lines_of(node))
    elif isinstance(node, (ast.ExceptHandler, ast.match_case)):
        place = replace(place, lines=range(node.body[0].lineno, node.body[0].lineno + 1))
    yield place
    if isinstance(node, ast.Raise):
        return
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "args"} and isinstance(
            node, (*_FUNCTIONS, ast.AnnAssign, ast.Lambda)
        ):
            continue
        for n, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST):
                at = n if isinstance(value, list) else None
                yield from _within(replace(place, parent=node, field=name, index=at, node=child))


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


def _lines_of(node: ast.stmt) -> range:
    """Of a statement alone, without what it holds."""
    inner = [
        each.lineno
        for name in ("body", "cases")
        for each in getattr(node, name, [])
        if isinstance(each, ast.stmt)
    ]
    end = inner[0] - 1 if inner else node.end_lineno or node.lineno
    return range(node.lineno, max(node.lineno, end) + 1)


def _text(node: ast.AST) -> str:
    """A piece of code on one line, cut where it is long."""
    if isinstance(node, ast.Try):
        kept = [ast.unparse(each.type) if each.type else "" for each in node.handlers]
        return f"try, except {', '.join(kept) or 'nothing'}{', finally' if node.finalbody else ''}"
    if isinstance(node, ast.Match):
        cases = [ast.unparse(each.pattern) for each in node.cases]
        return f"match {ast.unparse(node.subject)}: {', '.join(cases)}"
    if isinstance(node, ast.comprehension):
        return "for " + ast.unparse(node).strip().removeprefix("for ")
    lines = ast.unparse(node).splitlines()
    text = lines[0] if lines else ""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
