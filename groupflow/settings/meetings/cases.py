"""Which messages a rule takes of those that earlier rules leave, and which keys they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from groupflow.core.template import FieldPath, Template
from groupflow.settings.meetings.shapes import Part, Shape, Texts

if TYPE_CHECKING:
    from groupflow.settings.model import Settings
    from groupflow.settings.rules import GroupRule

_ANY = Texts()


@dataclass(frozen=True, slots=True)
class Case:
    """Messages that a rule takes: those of one application, or of any that no rule names."""

    index: int  # which rule it is
    rule: GroupRule
    fields: tuple[FieldPath, ...]  # the fields of its key, from the left
    shape: Shape  # its key without their names
    texts: tuple[Texts, ...]  # what each field can hold, as rendered
    held: tuple[tuple[FieldPath, str], ...]  # app and tenant, where the key doesn't name them

    def message(self, texts: Sequence[str]) -> tuple[bytes, dict[str, Any], dict[str, str]]:
        """A message whose key's parts are these texts: body, headers, and fields by their names."""
        values = dict(self.held)
        for part, text in zip(self.shape.parts, texts, strict=True):
            if isinstance(part, int):
                values[self.fields[part]] = unquote(text) if self.shape.escapes else text
        body: dict[str, Any] = {}
        headers: dict[str, Any] = {}
        for path, value in values.items():
            inside = headers if path.in_headers else body
            for step in path.steps[:-1]:
                inside = inside.setdefault(step, {})
            inside[path.steps[-1]] = value
        return orjson.dumps(body), headers, {path.text: text for path, text in values.items()}


def cases_of(settings: Settings) -> list[Case]:
    """The cases of all rules that don't share; of one rule, only those with keys of their own."""
    rules = _Rules(settings)
    found: list[Case] = []
    for index, rule in enumerate(settings.groups):
        cases = list(rules.cases_of(index, rule))
        if not rule.shares:
            found += _widest(cases)
    return found


class _Rules:
    """The rules in their order, and the tenants that earlier ones have taken."""

    def __init__(self, settings: Settings) -> None:
        paths = settings.fields.paths()
        self._app, self._tenant = paths.app, paths.tenant
        self._apps = frozenset(rule.app for rule in settings.groups) - {"*"}
        named = sorted(self._apps) if self._app else []
        self._taken: dict[str | None, frozenset[str]] = dict.fromkeys((None, *named), frozenset())
        self._rendered: dict[tuple[frozenset[str], frozenset[int]], frozenset[str]] = {}

    def cases_of(self, index: int, rule: GroupRule) -> Iterator[Case]:
        """What this rule takes; call it in the rules' order."""
        template = Template.parse(rule.key)
        shape, fields = _shape(template), template.fields
        owners = [path for path in (self._app, self._tenant) if path]
        possible = not _overlap([*fields, *owners])
        listed = frozenset(rule.tenants)
        joined: dict[int, frozenset[str]] = {}  # most applications have lost the same tenants
        before = dict(self._taken)
        for app in before if rule.app == "*" else before.keys() & {rule.app}:
            taken = before[app]
            if id(taken) not in joined:
                joined[id(taken)] = taken | listed
            self._taken[app] = joined[id(taken)]
            tenants = Texts(taken) if "*" in listed else Texts(listed - taken, but=False)
            needs_tenant = bool(tenants.names) or not tenants.but
            if "*" in taken or not possible or tenants == Texts(but=False):
                continue
            if needs_tenant and not self._tenant:
                continue
            apps = Texts(frozenset({app}), but=False) if app else Texts(self._apps)
            held = {self._app: apps, self._tenant: tenants}
            texts = tuple(self._rendering(held.get(path, _ANY), shape) for path in fields)
            owned = tuple((path, _one(held[path])) for path in owners)
            yield Case(index, rule, fields, shape, texts, owned)

    def _rendering(self, texts: Texts, shape: Shape) -> Texts:
        known = texts.names, frozenset(shape.escapes)
        if known not in self._rendered:
            names = frozenset(text.translate(shape.escapes) for text in texts.names)
            self._rendered[known] = names
        return Texts(self._rendered[known], but=texts.but)


def _widest(cases: list[Case]) -> list[Case]:
    """The cases without those whose keys another case of the same rule makes too."""
    widest: list[Case] = []
    for case in {case.texts: case for case in reversed(cases)}.values():
        if not any(_within(case, other) for other in widest):
            widest = [other for other in widest if not _within(other, case)]
            widest.append(case)
    return widest


def _within(case: Case, other: Case) -> bool:
    return all(mine.within(its) for mine, its in zip(case.texts, other.texts, strict=True))


def _overlap(paths: Sequence[FieldPath]) -> bool:
    """Whether one path lies within another: then no message has both."""
    inside = [path.steps for path in paths if not path.in_headers]
    return any(len(a) < len(b) and b[: len(a)] == a for a, b in permutations(inside, 2))


def _shape(template: Template) -> Shape:
    parts: list[Part] = []
    fields = 0
    for part in template.parts:
        if isinstance(part, str):
            parts.append(part)
        else:
            parts.append(fields)
            fields += 1
    escapes: Mapping[int, str] = template.escapes
    return Shape(tuple(parts), escapes)


def _one(texts: Texts) -> str:
    if not texts.but:
        return min(texts.names)
    name = "other"
    while name in texts.names:
        name += "-"
    return name
