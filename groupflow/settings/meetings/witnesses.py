"""Two messages of two rules that make one key, or the proof that there are none."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeAlias

from groupflow.core.errors import Unroutable
from groupflow.core.routing import Router
from groupflow.core.template import FieldPath
from groupflow.settings.meetings.cases import Case
from groupflow.settings.meetings.languages import (
    AnyBut,
    Budget,
    OneOf,
    Piece,
    Trie,
    Undecided,
    find_shared,
)
from groupflow.settings.meetings.shapes import Alignment, Texts, align

STEPS = 20_000  # in all walks of one check
TRIES = 200  # walks for one pair of rules whose keys name a field twice
_FEW = 8  # of many names, how many are tried before all are

_Fixed: TypeAlias = frozenset[tuple[FieldPath, str]]
"""Fields that occur twice in a key, each with the text tried for it."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A key of two rules, and the fields of both messages."""

    key: str
    of_one: dict[str, Any]
    of_other: dict[str, Any]


class Witnesses:
    """Looks for messages, within one budget for all pairs."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._budget = Budget(STEPS)
        self._tries: dict[Texts, Trie] = {}

    @property
    def walked(self) -> int:
        """How many steps were taken."""
        return STEPS - self._budget.left

    def find(self, one: Case, other: Case, how: Alignment) -> Meeting | None:
        """Two messages with one key; ``None``: proven that there are none.

        Raises:
            Undecided: neither was found.
        """
        again = align(one.shape.filled(one.texts), other.shape.filled(other.texts))
        if again is None or not again.allows(one.texts, other.texts):
            return None
        self._budget.spend(1)
        cases = _agreeing(one, other, how)
        start: tuple[_Fixed, _Fixed] = (frozenset(), frozenset())
        waiting, seen = deque([start]), {start}
        is_proof = True
        for _ in range(TRIES):
            if not waiting:
                break
            fixed = waiting.popleft()
            texts = self._walk(cases, fixed)
            if texts is None:
                continue
            found = self._route((one, other), texts)
            if found is not None:
                return found
            further, are_all = _tried_next(cases, texts, fixed)
            is_proof = is_proof and are_all
            waiting.extend(each for each in further if each not in seen)
            seen.update(further)
        if waiting or not is_proof:
            raise Undecided
        return None

    def _walk(
        self, cases: tuple[_Fields, _Fields], fixed: tuple[_Fixed, _Fixed]
    ) -> tuple[list[str], list[str]] | None:
        wholes = [case.texts_with(texts) for case, texts in zip(cases, fixed, strict=True)]
        fews = [tuple(_few(texts) for texts in whole) for whole in wholes]
        for tried in (fews, wholes) if fews != wholes else (wholes,):
            pieces = [self._pieces(c.case, texts) for c, texts in zip(cases, tried, strict=True)]
            found = find_shared(pieces[0], pieces[1], self._budget)
            if found is not None:
                return found
        return None

    def _pieces(self, case: Case, texts: tuple[Texts, ...]) -> list[Piece]:
        escapes = case.shape.escapes
        encoded = Trie(escapes.values())
        pieces: list[Piece] = []
        for part in case.shape.parts:
            if isinstance(part, str):
                pieces.append(OneOf(Trie([part])))
                continue
            can = texts[part]
            if can not in self._tries:
                self._budget.spend(len(can.names))
                self._tries[can] = Trie(sorted(can.names))
            trie = self._tries[can]
            pieces.append(AnyBut(escapes, trie, encoded) if can.but else OneOf(trie))
        return pieces

    def _route(
        self, cases: tuple[Case, Case], texts: tuple[list[str], list[str]]
    ) -> Meeting | None:
        """The two messages as routed, if they have one key."""
        named, routes = [], []
        try:
            for case, each in zip(cases, texts, strict=True):
                body, headers, fields = case.message(each)
                routes.append(self._router.route(body, headers, type="t"))
                named.append(fields)
        except Unroutable:
            return None
        keys = {route.group for route in routes}
        if len(keys) > 1 or [r.rule for r in routes] != [case.rule.name for case in cases]:
            return None
        return Meeting(keys.pop() or "", *named)


@dataclass(frozen=True, slots=True)
class _Fields:
    """A case whose fields hold less than it allows."""

    case: Case
    texts: tuple[Texts, ...]

    def texts_with(self, fixed: _Fixed) -> tuple[Texts, ...]:
        only = {path: Texts(frozenset({text}), but=False) for path, text in fixed}
        return tuple(
            only.get(path, can) for path, can in zip(self.case.fields, self.texts, strict=True)
        )


def _agreeing(one: Case, other: Case, how: Alignment) -> tuple[_Fields, _Fields]:
    """Both without names that the other's field in the same place can't hold."""
    here, there = list(one.texts), list(other.texts)
    for mine, its in how.fields:
        here[mine] = here[mine].narrowed(there[its])
        there[its] = there[its].narrowed(here[mine])
    return _Fields(one, tuple(here)), _Fields(other, tuple(there))


def _few(texts: Texts) -> Texts:
    if texts.but or len(texts.names) <= _FEW:
        return texts
    return Texts(frozenset(sorted(texts.names)[:_FEW]), but=False)


def _tried_next(
    cases: tuple[_Fields, _Fields], texts: tuple[list[str], list[str]], fixed: tuple[_Fixed, _Fixed]
) -> tuple[list[tuple[_Fixed, _Fixed]], bool]:
    """What to fix where a field got two texts in one key, and whether that is all it can hold."""
    for side, (fields, parts) in enumerate(zip(cases, texts, strict=True)):
        got: dict[FieldPath, list[str]] = {}
        for part, text in zip(fields.case.shape.parts, parts, strict=True):
            if isinstance(part, int):
                got.setdefault(fields.case.fields[part], []).append(text)
        for path, values in got.items():
            if len(set(values)) > 1:
                can = fields.texts[fields.case.fields.index(path)]
                if not can.but and len(can.names) <= TRIES:
                    tried = sorted(can.names)
                else:
                    unlike = list(dict.fromkeys(values))
                    tried = [v for v in unlike if v in can]
                    tried += [a + b for a, b in permutations(unlike, 2) if a + b in can]
                both = list(fixed)
                further = []
                for text in tried:
                    both[side] = fixed[side] | {(path, text)}
                    further.append((both[0], both[1]))
                return further, not can.but and len(can.names) <= TRIES
    return [], False
