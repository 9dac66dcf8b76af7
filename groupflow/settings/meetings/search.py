"""Rules whose keys can meet: a message of one and a message of the other make the same group.

Then a publisher for one can hold, pause or park a group of the other. Rendering keeps the fields of
one template apart; between two templates only the operator can, by texts of their own. No pair is
refused on suspicion: for each there are two messages that routing gives one key. An undecided pair
is reported as a doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

from groupflow.core.errors import Problem
from groupflow.core.template import show
from groupflow.settings.meetings.cases import Case, cases_of
from groupflow.settings.meetings.languages import Undecided
from groupflow.settings.meetings.shapes import Alignment, Shape, Texts, align
from groupflow.settings.meetings.witnesses import Meeting, Witnesses

if TYPE_CHECKING:
    from groupflow.settings.model import Settings
    from groupflow.settings.rules import GroupRule

MOST = 10  # meetings, and doubts, that are named
MOST_COMPARED = 20_000  # pairs that are compared before the rest is in doubt


@dataclass(frozen=True, slots=True)
class Meetings:
    """What to report of rules that can meet, unless one of the two has ``shares = true``."""

    problems: list[Problem]  # for each pair that can, with a key that both make; ten at most
    doubts: list[str]  # for pairs that are undecided
    steps: int = 0  # how many pairs were compared and how many characters walked


def find_meetings(settings: Settings) -> Meetings:
    """Compare all rules, within a bound."""
    search = _Search(settings)
    search.run()
    found = [search.problem(pair) for pair in sorted(search.found)]
    return Meetings(found, search.doubts(), search.compared + search.witnesses.walked)


@dataclass(frozen=True, slots=True)
class _Node:
    """Cases of one shape, and what the fields of any of them can hold."""

    cases: list[Case]
    texts: tuple[Texts, ...]
    halves: tuple[_Node, ...] = ()  # the same cases in two parts; empty for one case
    rule: int | None = None  # their rule; None where they are of several

    @classmethod
    def of(cls, cases: list[Case]) -> _Node:
        if len(cases) == 1:
            return cls(cases, cases[0].texts, rule=cases[0].index)
        half = len(cases) // 2
        one, other = cls.of(cases[:half]), cls.of(cases[half:])
        texts = tuple(a | b for a, b in zip(one.texts, other.texts, strict=True))
        return cls(cases, texts, (one, other), one.rule if one.rule == other.rule else None)


@dataclass
class _Search:
    """Looks for messages of two rules with one key."""

    settings: Settings
    found: dict[tuple[int, int], Meeting] = field(default_factory=dict)
    unknown: set[tuple[int, int]] = field(default_factory=set)
    compared: int = 0
    is_spent: bool = False

    def __post_init__(self) -> None:
        self.witnesses = Witnesses(self.settings.router())

    def run(self) -> None:
        """Compare until all are compared, enough are found, or the bound is reached."""
        by_shape: dict[Shape, list[Case]] = {}
        for case in cases_of(self.settings):
            by_shape.setdefault(case.shape, []).append(case)
        nodes = {shape: _Node.of(cases) for shape, cases in by_shape.items()}
        pairs = chain(((shape, shape) for shape in nodes), _may_begin_alike(list(nodes)))
        try:
            for one, other in pairs:
                self._compare_shapes(nodes, one, other)
        except _EnoughError:
            pass
        except Undecided:
            self.is_spent = True

    def _compare_shapes(self, nodes: dict[Shape, _Node], one: Shape, other: Shape) -> None:
        self._count()
        how = align(one, other)
        if how is None:
            return
        if one == other:
            self._within(nodes[one], how)
        else:
            self._between(nodes[one], nodes[other], how)

    def _within(self, node: _Node, how: Alignment) -> None:
        if node.halves and node.rule is None:
            one, other = node.halves
            self._within(one, how)
            self._within(other, how)
            self._between(one, other, how)

    def _between(self, one: _Node, other: _Node, how: Alignment) -> None:
        self._count()
        is_one_rule = one.rule is not None and one.rule == other.rule
        if is_one_rule or not how.allows(one.texts, other.texts):
            return
        if one.halves and len(one.cases) >= len(other.cases):
            for half in one.halves:
                self._between(half, other, how)
        elif other.halves:
            for half in other.halves:
                self._between(one, half, how)
        else:
            self._meet(one.cases[0], other.cases[0], how)

    def _meet(self, one: Case, other: Case, how: Alignment) -> None:
        if one.index > other.index:
            one, other, how = other, one, how.turned()
        pair = one.index, other.index
        if pair in self.found:
            return
        try:
            found = self.witnesses.find(one, other, how)
        except Undecided:
            self.unknown.add(pair)
            return
        if found is not None:
            self.found[pair] = found
            if len(self.found) == MOST:
                raise _EnoughError

    def _count(self) -> None:
        self.compared += 1
        if self.compared > MOST_COMPARED:
            raise Undecided

    def problem(self, pair: tuple[int, int]) -> Problem:
        """What to say of two rules that meet."""
        rules = self.settings.groups
        (first, one), (second, other) = ((index, rules[index]) for index in pair)
        found = self.found[pair]
        return Problem(
            f"groups[{second}].key",
            show(other.key),
            f"Its keys can meet those of groups[{first}], {show(one.key)}: {show(found.key)} is "
            f"made of {_listing(found.of_other)} here, and of {_listing(found.of_one)} there; so "
            f"whoever publishes for one can hold or park the other's groups. {self._remedy(pair)}",
        )

    def doubts(self) -> list[str]:
        """What to say of undecided pairs."""
        rules = self.settings.groups
        unknown = sorted(self.unknown - self.found.keys())
        lines = [
            f"groups[{second}].key, {show(rules[second].key)}, can't be shown apart from "
            f"groups[{first}].key, {show(rules[first].key)}: perhaps a message of each makes the "
            f"same group. {self._remedy((first, second))}"
            for first, second in unknown[:MOST]
        ]
        if len(unknown) > MOST:
            lines.append(f"{len(unknown) - MOST} more pairs of rules can't be shown apart.")
        if self.is_spent:
            lines.append(
                "The rules are too many, and too much alike, for all of them to be compared: keys "
                "of two of them may meet. Begin each key with a text of its own."
            )
        return lines

    def _remedy(self, pair: tuple[int, int]) -> str:
        one, other = (_example(index, self.settings.groups[index]) for index in pair)
        return (
            "Begin both keys with texts of their own, neither of which begins the other's, such as "
            f'"{one}" and "{other}"; or say shares = true in one of the two rules, if they are '
            "meant to share groups."
        )


class _EnoughError(Exception):
    """As many meetings were found as are named."""


def _may_begin_alike(shapes: list[Shape]) -> Iterator[tuple[Shape, Shape]]:
    """The pairs where the first text of one begins the first text of the other."""
    shapes = sorted(shapes, key=lambda shape: shape.begin)
    for at, one in enumerate(shapes):
        behind = (shapes[n] for n in range(at + 1, len(shapes)))
        for other in takewhile(lambda shape: shape.begin.startswith(one.begin), behind):  # noqa: B023
            yield one, other


def _listing(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {show(value)}" for name, value in values.items())


def _example(index: int, rule: GroupRule) -> str:
    name = rule.app if rule.app != "*" else f"rule{index}"
    return f"{name}:{rule.key}"
