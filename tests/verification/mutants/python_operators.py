"""What can be done to one piece of Python, by its kind: each change is one mutant.

Conditions: a comparison is negated and moved by its boundary, an operand of `and` or `or` left out,
a `not` lifted, any other test negated, a `case` or its guard left out. Effects: a call whose result
no code takes is left out, and so is an assignment to what outlives the function, a `raise`, a
`break`, a `continue`, a bare `return`, an `except`, a `finally`, a `with`. Values: `+` and `-`, `*`
and `/`, `min` and `max`, `any` and `all` change places; a truth value is turned, a number is one
more.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import TypeVar

_T = TypeVar("_T")
_N = TypeVar("_N", bound=ast.AST)

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.GtE, ast.LtE), ast.LtE: (ast.Gt, ast.Lt),
    ast.Gt: (ast.LtE, ast.GtE), ast.GtE: (ast.Lt, ast.Gt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
# What has changes of its own, also where it is a test.
_CONDITIONS = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)
_TEXTS = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place, one change each; the node itself stays as it is."""
    match node:
        case ast.stmt():
            yield from _changes_of_statement(node)
        case ast.expr():
            yield from _changes_of_expression(node)
        case ast.comprehension(ifs=tests):
            for rest in _without_one(tests):
                yield _with(node, ifs=rest)
        case ast.match_case(guard=ast.expr()):
            yield _with(node, guard=None)


def _changes_of_expression(node: ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=ops):
            for n, op in enumerate(ops):
                for other in _COMPARISONS[type(op)]:
                    yield _with(node, ops=[*ops[:n], other(), *ops[n + 1 :]])
        case ast.BoolOp(values=values):
            for rest in _without_one(values):
                yield rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            if not any(_is_text(side) for side in (left, right)):
                yield _with(node, op=_ARITHMETIC[type(op)]())
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield _with(node, func=ast.Name(_CALLS[name], ast.Load()))
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.IfExp(test=test) if not isinstance(test, _CONDITIONS):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))


def _changes_of_statement(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            yield ast.Pass()
        case ast.Break() | ast.Continue() | ast.Return(value=None):
            yield ast.Pass()
        case ast.Assign(targets=targets):
            if not any(isinstance(each, ast.Name) for each in targets):
                yield ast.Pass()
        case ast.AnnAssign(target=ast.Attribute(), value=ast.expr()):
            yield ast.Pass()
        case ast.AugAssign(op=op):
            yield ast.Pass()
            if type(op) in _ARITHMETIC:
                yield _with(node, op=_ARITHMETIC[type(op)]())
        case _:
            yield from _changes_of_block(node)


def _changes_of_block(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            if not isinstance(test, _CONDITIONS):
                yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Match(cases=cases) if len(cases) > 1:
            for rest in _without_one(cases):
                yield _with(node, cases=rest)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for n, item in enumerate(items):
                if item.optional_vars is None:
                    others = [*items[:n], *items[n + 1 :]]
                    yield _with(node, items=others) if others else _bare(node.body)
        case ast.Try():
            yield from _changes_of_try(node)


def _changes_of_try(node: ast.Try) -> Iterator[ast.AST]:
    for rest in _without_one(node.handlers):
        if rest or node.finalbody:
            yield _with(node, handlers=rest, orelse=node.orelse if rest else [])
        else:
            yield _bare([*node.body, *node.orelse])
    for n, handler in enumerate(node.handlers):
        if isinstance(handler.type, ast.Tuple):
            for names in _without_one(handler.type.elts):
                fewer = _with(handler, type=_with(handler.type, elts=names))
                yield _with(node, handlers=[*node.handlers[:n], fewer, *node.handlers[n + 1 :]])
    if node.finalbody:
        yield _with(node, finalbody=[]) if node.handlers else _bare(node.body)


def _without_one(values: list[_T]) -> Iterator[list[_T]]:
    for n in range(len(values)):
        yield [*values[:n], *values[n + 1 :]]


def _with(node: _N, **fields: object) -> _N:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _bare(body: list[ast.stmt]) -> ast.If:
    return ast.If(ast.Constant(value=True), body, [])


def _is_text(node: ast.expr) -> bool:
    is_literal = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    return is_literal or isinstance(node, _TEXTS)
