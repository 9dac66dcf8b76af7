"""Rules whose keys can meet: a message of one and a message of the other make the same group.

Then whoever publishes for the one can hold, pause or park a group of the other. Rendering keeps the
fields of one template apart; between two templates only the operator can, by texts of their own. No
pair is named on suspicion: for each there are two messages, routed as they will be, with one key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import orjson

from groupflow.core.errors import Problem, Unroutable
from groupflow.core.key_languages import AnyBut, OneOf, Piece, Trie, find_shared
from groupflow.core.routing import Message, Router
from groupflow.core.template import FieldPath, Template, show

if TYPE_CHECKING:
    from groupflow.core.settings import Settings
    from groupflow.core.settings_rules import GroupRule

MOST = 10  # meetings that are named


_Found: TypeAlias = tuple[str, dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Case:
    """Messages that a rule takes: those of one application, or of any that no rule names.

    Attributes:
        app: the application; ``None`` for one that no rule names.
        tenants: whom of it the rule takes; ``None`` for all but `taken`.
        taken: whom an earlier rule takes.
    """

    rule: GroupRule
    template: Template
    app: str | None
    tenants: frozenset[str] | None
    taken: frozenset[str]


def problems_of_meetings(settings: Settings) -> list[Problem]:
    """What to say of rules that can meet, unless one of the two says ``shares = true``."""
    found = []
    search = _Search(settings)
    for first, second in combinations(range(len(settings.groups)), 2):
        problem = search.between(first, second)
        if problem is not None:
            found.append(problem)
            if len(found) == MOST:
                break
    return found


class _Search:
    """Looks for two messages of two rules with one key."""

    def __init__(self, settings: Settings) -> None:
        self._rules = settings.groups
        self._templates = [Template.parse(rule.key) for rule in settings.groups]
        self._begins = [_begin(template) for template in self._templates]
        self._app = _path(settings.fields.app)
        self._tenant = _path(settings.fields.tenant)
        self._apps = frozenset(rule.app for rule in settings.groups) - {"*"}
        self._router = Router(settings)
        self._cases = [list(self._cases_of(index)) for index in range(len(self._rules))]

    def between(self, first: int, second: int) -> Problem | None:
        """What to say of these two rules; ``None`` if they can't meet, or may."""
        one, other = self._rules[first], self._rules[second]
        begins = self._begins[first], self._begins[second]
        if one.shares or other.shares or not _may_be_one(*begins):
            return None
        for here in self._cases[first]:
            for there in self._cases[second]:
                found = self._meet(here, there)
                if found is not None:
                    return _problem((first, one), (second, other), found)
        return None

    def _cases_of(self, index: int) -> Iterator[_Case]:
        rule = self._rules[index]
        named = sorted(self._apps) if self._app else []
        for app in (*named, None) if rule.app == "*" else (a for a in named if a == rule.app):
            earlier = [r for r in self._rules[:index] if r.app in ("*", app)]
            taken = frozenset(tenant for r in earlier for tenant in r.tenants)
            tenants = None if rule.tenants == ("*",) else frozenset(rule.tenants) - taken
            needs_tenant = tenants is not None or bool(taken)
            if "*" in taken or tenants == frozenset() or (needs_tenant and not self._tenant):
                continue
            yield _Case(rule, self._templates[index], app, tenants, taken)

    def _meet(self, one: _Case, other: _Case) -> _Found | None:
        """The key, and what the two messages hold."""
        has_tenant = self._tenant in one.template.fields
        if one.app and one.app == other.app and has_tenant and one.rule.key == other.rule.key:
            return None  # the same text, with other tenants in it
        texts = find_shared(self._pieces(one), self._pieces(other))
        if texts is None:
            return None
        found = [self._message(case, each) for case, each in zip((one, other), texts, strict=True)]
        keys = set()
        for case, (message, _) in zip((one, other), found, strict=True):
            try:
                route = self._router.route(message)
            except Unroutable:
                return None
            if route.rule != case.rule.name or route.group is None:
                return None
            keys.add(route.group)
        return (keys.pop(), found[0][1], found[1][1]) if len(keys) == 1 else None

    def _pieces(self, case: _Case) -> list[Piece]:
        escapes = case.template.escapes
        encoded = Trie(escapes.values())

        def rendered(texts: frozenset[str]) -> Trie:
            return Trie(text.translate(escapes) for text in sorted(texts))

        pieces: list[Piece] = []
        for part in case.template.parts:
            if isinstance(part, str):
                pieces.append(OneOf(Trie([part])))
            elif part == self._app and case.app:
                pieces.append(OneOf(rendered(frozenset({case.app}))))
            elif part == self._tenant and case.tenants is not None:
                pieces.append(OneOf(rendered(case.tenants)))
            else:
                without = {self._app: self._apps, self._tenant: case.taken}.get(part, frozenset())
                pieces.append(AnyBut(escapes, rendered(without), encoded))
        return pieces

    def _message(self, case: _Case, texts: list[str]) -> tuple[Message, dict[str, Any]]:
        """A message of this case whose fields hold these texts, and those fields by their names."""
        values: dict[FieldPath, str] = {}
        if self._app:
            values[self._app] = case.app or _other(self._apps)
        if self._tenant:
            values[self._tenant] = min(case.tenants) if case.tenants else _other(case.taken)
        for part, text in zip(case.template.parts, texts, strict=True):
            if isinstance(part, FieldPath):
                values[part] = unquote(text) if case.template.escapes else text
        body: dict[str, Any] = {}
        headers: dict[str, Any] = {}
        for path, value in values.items():
            inside = headers if path.in_headers else body
            for step in path.steps[:-1]:
                inside = inside.setdefault(step, {})
                if not isinstance(inside, dict):
                    inside = {}  # one path lies within another: routing will not find it
            inside[path.steps[-1]] = value
        message = Message(orjson.dumps(body), headers, type="t")
        return message, {path.text: value for path, value in values.items()}


def _begin(template: Template) -> str:
    first = template.parts[0]
    return first if isinstance(first, str) else ""


def _may_be_one(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _path(text: str) -> FieldPath | None:
    return FieldPath.parse(text) if text else None


def _other(names: frozenset[str]) -> str:
    """A name that is none of these."""
    name = "other"
    while name in names:
        name += "-"
    return name


def _problem(first: tuple[int, GroupRule], second: tuple[int, GroupRule], found: _Found) -> Problem:
    key, here, there = found
    return Problem(
        f"groups[{second[0]}].key",
        show(second[1].key),
        f"Its keys can meet those of groups[{first[0]}], {show(first[1].key)}: {show(key)} is made "
        f"of {_told(there)} here, and of {_told(here)} there; so whoever publishes for one can "
        "hold or park the other's groups. Begin both keys with texts of their own, neither of "
        f'which begins the other\'s, such as "{_example(*first)}" and "{_example(*second)}"; or '
        "say shares = true in one of the two rules, if they are meant to share groups.",
    )


def _told(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {show(value)}" for name, value in values.items())


def _example(index: int, rule: GroupRule) -> str:
    name = rule.app if rule.app != "*" else f"rule{index}"
    return f"{name}:{rule.key}"
