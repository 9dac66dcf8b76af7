"""Key collisions: two rules whose messages can make one group key.

A publisher for one such rule can hold, pause or park groups of the other. Rendering keeps the
messages of one template apart. Two rules are accepted

1. if one says ``shares = true``, or earlier rules take all messages of one;
2. if their keys begin, or end, with texts neither of which begins, or ends, the other;
3. if their keys have the same texts around their fields, and two fields in the same place can't be
   equal: both name the tenant, say, and no tenant is in both;
4. if their keys, split at separators, differ in number or in a piece. A separator is a character
   that no field of either key can hold. Two pieces differ as keys do in 2, or if each is one field,
   or text alone, and they can't be equal.

All others are refused, with a counterexample where a few guesses find one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, count, islice, product, takewhile
from typing import Any, TypeAlias
from urllib.parse import unquote

import orjson

from groupflow.core.errors import Problem, Unroutable
from groupflow.core.routing import Router
from groupflow.core.template import FieldPath, Template, show
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule

_MOST = 10  # collisions that are named
_TRIES = 1000  # keys of a rule that a counterexample is looked for among
_TEXTS = 5  # of a field that are tried
_ENCODING = frozenset("%0123456789ABCDEF")  # what percent-encoding puts into fields


@dataclass(frozen=True, slots=True)
class _Values:
    """What a field can hold: these texts or, with `others`, any but these."""

    texts: frozenset[str] = frozenset()
    others: bool = False

    def meet(self, other: _Values) -> bool:
        """Whether one text is of both."""
        if self.others and other.others:
            return True
        if self.others or other.others:
            but, some = (self, other) if self.others else (other, self)
            return not some.texts <= but.texts
        return not self.texts.isdisjoint(other.texts)

    def example(self) -> str:
        """One of them."""
        if not self.others:
            return min(self.texts)
        return next(text for n in count(1) if (text := "x" * n) not in self.texts)


_ANY = _Values(others=True)

_Piece: TypeAlias = Sequence[str | _Values]
"""Characters and fields that follow each other in a key."""


@dataclass(frozen=True)
class _Case:
    """The messages of one application, or of all that no rule names, that a rule takes."""

    index: int  # which rule
    rule: GroupRule
    template: Template
    held: dict[FieldPath, _Values]  # application and tenant

    @cached_property
    def parts(self) -> tuple[_Values, ...]:
        """What the template's parts can be, as rendered."""
        escapes = self.template.escapes
        found = []
        for part in self.template.parts:
            if isinstance(part, str):
                found.append(_Values(frozenset({part})))
            else:
                raw = self.held.get(part, _ANY)
                texts = frozenset(text.translate(escapes) for text in raw.texts)
                found.append(_Values(texts, raw.others))
        return tuple(found)

    @cached_property
    def shape(self) -> tuple[str | None, ...]:
        """The texts around the fields."""
        return tuple(part if isinstance(part, str) else None for part in self.template.parts)

    @cached_property
    def key(self) -> _Piece:
        """The whole key; a field that can hold only one text is that text."""
        found: list[str | _Values] = []
        for values in self.parts:
            found += [values] if values.others or len(values.texts) > 1 else min(values.texts)
        return found

    @cached_property
    def begin(self) -> str:
        """The text before the first field."""
        return _begin(self.key)

    @cached_property
    def end(self) -> str:
        """The text after the last field, read backwards."""
        return _begin(self.key[::-1])

    def can_hold(self, character: str) -> bool:
        """Whether a field can hold a character, as rendered."""
        is_free = ord(character) not in self.template.escapes or character in _ENCODING
        fields = (part for part in self.key if isinstance(part, _Values))
        return any(
            is_free if field.others else any(character in text for text in field.texts)
            for field in fields
        )

    def split(self, separators: Collection[str], at: int) -> list[_Piece]:
        """The first characters, then the pieces of the rest with the separators between them."""
        pieces: list[list[str | _Values]] = [[]]
        for part in self.key[at:]:
            if part in separators:
                pieces += [[part], []]
            else:
                pieces[-1].append(part)
        return [self.key[:at], *pieces]


def find_collisions(settings: Settings) -> list[Problem]:
    """What is wrong with the rules' keys; ten problems at most."""
    router = settings.router()
    problems: dict[tuple[int, int], Problem] = {}
    for one, other in combinations(_cases(settings), 2):
        if one.index == other.index or not _can_collide(one, other):
            continue
        if (one.index, other.index) not in problems:
            problems[one.index, other.index] = _problem(one, other, router)
            if len(problems) == _MOST:
                break
    return list(problems.values())


def _cases(settings: Settings) -> Iterator[_Case]:
    """The cases of rules that don't share, in the rules' order."""
    paths = settings.fields.paths()
    apps = frozenset(rule.app for rule in settings.groups if paths.app) - {"*"}
    taken: dict[str, frozenset[str]] = dict.fromkeys(("*", *sorted(apps)), frozenset())
    for index, rule in enumerate(settings.groups):
        template = Template.parse(rule.key)
        listed = frozenset(rule.tenants)
        cases: dict[tuple[_Values, ...], _Case] = {}
        for app in taken if rule.app == "*" else taken.keys() & {rule.app}:
            before = taken[app]
            taken[app] = before | listed
            left = _Values(before, others=True) if "*" in listed else _Values(listed - before)
            needs_tenant = bool(left.texts) or not left.others
            if "*" in before or left == _Values() or (needs_tenant and not paths.tenant):
                continue
            names = _Values(frozenset({app})) if app != "*" else _Values(apps, others=True)
            held = {path: each for path, each in ((paths.app, names), (paths.tenant, left)) if path}
            case = _Case(index, rule, template, held)
            cases.setdefault(case.parts, case)
        if not rule.shares:
            yield from cases.values()


def _can_collide(one: _Case, other: _Case) -> bool:
    for mine, its in ((one.begin, other.begin), (one.end, other.end)):
        if not (mine.startswith(its) or its.startswith(mine)):
            return False
    pieces, others = _split(one, other)
    return len(pieces) == len(others) and all(map(_can_be_equal, pieces, others))


def _split(one: _Case, other: _Case) -> tuple[list[_Piece], list[_Piece]]:
    """The pieces of both keys that are equal where the keys are."""
    if one.shape == other.shape:  # both are rendered alike, and rendering is injective
        return [[part] for part in one.parts], [[part] for part in other.parts]
    texts = {part for part in (*one.key, *other.key) if isinstance(part, str)}
    separators = {text for text in texts if not (one.can_hold(text) or other.can_hold(text))}
    alike = min(len(one.begin), len(other.begin))  # one of them begins the other
    return one.split(separators, alike), other.split(separators, alike)


def _can_be_equal(mine: _Piece, its: _Piece) -> bool:
    if not mine or not its:
        return not mine and not its  # no field is empty
    a, b = _whole(mine), _whole(its)
    if a and b:
        return a.meet(b)
    return all(_fit(_begins(mine, step), _begins(its, step)) for step in (1, -1))


def _fit(these: Collection[str], those: Collection[str]) -> bool:
    """Whether a text of one begins a text of the other."""
    return any(
        text[:length] in others
        for texts, others in ((these, those), (those, these))
        for text in texts
        for length in range(len(text) + 1)
    )


def _whole(piece: _Piece) -> _Values | None:
    """What a piece can be that is one field, or text alone."""
    if len(piece) == 1 and isinstance(piece[0], _Values):
        return piece[0]
    text = _begin(piece)
    return _Values(frozenset({text})) if len(text) == len(piece) else None


def _begin(piece: _Piece) -> str:
    """The text before the first field."""
    return "".join(takewhile(lambda part: isinstance(part, str), piece))  # type: ignore[arg-type]


def _begins(piece: _Piece, step: int) -> frozenset[str]:
    """Texts, one of which the piece begins with or, with -1, ends with, read backwards."""
    piece = piece[::step]
    first = piece[0]
    if isinstance(first, _Values) and not first.others:
        return frozenset(text[::step] for text in first.texts)
    return frozenset({_begin(piece)})


def _problem(one: _Case, other: _Case, router: Router) -> Problem:
    first, second = one.index, other.index
    there = f"those of groups[{first}], {show(one.rule.key)}"
    what = f"Nothing tells its keys from {there}"
    found = _counterexample(one, other, router)
    if found:
        key, of_one, of_other = found
        what = (
            f"Its keys can collide with {there}: {show(key)} is made of {_listing(of_other)} here, "
            f"and of {_listing(of_one)} there"
        )
    texts = [one.rule.app, other.rule.app]
    if one.rule.app == other.rule.app or not all(re.fullmatch(r"[\w.-]+", text) for text in texts):
        texts = [f"rule{first}", f"rule{second}"]
    return Problem(
        f"groups[{second}].key",
        show(other.rule.key),
        f"{what}; so a publisher for one may hold or park the other's groups. Begin both keys with "
        "texts of their own, neither of which begins the other's, such as "
        f'"{texts[0]}:{one.rule.key}" and "{texts[1]}:{other.rule.key}"; or say shares = true in '
        "one of the two rules, if they are meant to share groups.",
    )


def _listing(fields: dict[str, str]) -> str:
    return ", ".join(f"{name} = {show(value)}" for name, value in fields.items())


def _counterexample(
    one: _Case, other: _Case, router: Router
) -> tuple[str, dict[str, str], dict[str, str]] | None:
    """A key that routing gives a message of each, and their fields; ``None``: not found."""
    for key in chain(_keys(one, other), _keys(other, one)):
        of_one, of_other = (_message(case, key, router) for case in (one, other))
        if of_one and of_other:
            return key, of_one, of_other
    return None


def _keys(case: _Case, other: _Case) -> Iterator[str]:
    """Some keys of a case, with fields that have texts of the other's keys in them."""
    texts = [text for part in other.parts for text in sorted(part.texts)[:_TEXTS]]
    around = (each for text in texts for each in (text, f"x{text}x", *re.findall(r"\w+", text)))
    words = ["x", *dict.fromkeys(around)]
    fields = (
        [word for word in words if word not in part.texts]
        if part.others
        else sorted(part.texts, key=lambda text: (text not in texts, text))[:_TEXTS]
        for part in case.parts
    )
    return map("".join, islice(product(*fields), _TRIES))


def _message(case: _Case, key: str, router: Router) -> dict[str, str] | None:
    """The fields of a message of which routing makes this key; ``None``: not found."""
    template = case.template
    encoded = "".join(map(chr, template.escapes)).replace("%", "")
    field = f"([^{re.escape(encoded)}]+?)" if encoded else "(.+?)"
    parts = (re.escape(part) if isinstance(part, str) else field for part in template.parts)
    found = re.fullmatch("".join(parts), key)
    if found is None:
        return None
    values = {path: held.example() for path, held in case.held.items()}
    for path, text in zip(template.fields, found.groups(), strict=True):
        values[path] = unquote(text) if template.escapes else text
    body: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    try:
        for path, text in values.items():
            path.put(body, headers, text)
        route = router.route(orjson.dumps(body), headers, type="t")
    except Unroutable:
        return None
    if (route.group, route.rule) != (key, case.rule.name):
        return None
    return {path.text: text for path, text in values.items()}
