"""Which parts of two equal keys must be one text: tells most pairs of rules apart without a search.

A character that neither template's fields may hold bare stands in a key only where the literal text
has it. So two equal keys have it in the same places, and between these places they must be equal
too: two texts, two fields, or a text and a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from groupflow.settings.meetings.languages import AnyBut, Trie

_HEX = frozenset("%0123456789ABCDEF")  # characters of a percent-encoding

Part: TypeAlias = str | int
"""Literal text, or which of a key's fields."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Some texts, or all but some, as rendered."""

    names: frozenset[str] = frozenset()
    but: bool = True

    def __contains__(self, text: str) -> bool:
        return (text in self.names) != self.but

    def __or__(self, other: Texts) -> Texts:
        if self.but and other.but:
            return Texts(self.names & other.names)
        if self.but or other.but:
            all_but, some = (self, other) if self.but else (other, self)
            return Texts(all_but.names - some.names)
        return Texts(self.names | other.names, but=False)

    def meets(self, other: Texts) -> bool:
        if self.but and other.but:
            return True
        if self.but or other.but:
            all_but, some = (self, other) if self.but else (other, self)
            return not some.names <= all_but.names
        return not self.names.isdisjoint(other.names)

    def narrowed(self, other: Texts) -> Texts:
        """The texts that the other has too; "all but some" stays as it is."""
        return (
            self if self.but else Texts(frozenset(n for n in self.names if n in other), but=False)
        )

    def within(self, other: Texts) -> bool:
        """Whether the other has all of these."""
        if self.but:
            return other.but and other.names <= self.names
        return self.names.isdisjoint(other.names) if other.but else self.names <= other.names


@dataclass(frozen=True)
class Shape:
    """A template without its fields' names."""

    parts: tuple[Part, ...]  # literal text and fields, by their numbers from the left
    escapes: Mapping[int, str] = field(compare=False)
    """What is percent-encoded in the fields; it follows from the parts."""

    @property
    def begin(self) -> str:
        """The text before the first field."""
        return _edge(self.parts, 0)

    def filled(self, texts: tuple[Texts, ...]) -> Shape:
        """The same, with fields that can hold only one text as literal text."""
        parts: list[Part] = []
        for part in self.parts:
            can = texts[part] if isinstance(part, int) else None
            text = min(can.names) if can and not can.but and len(can.names) == 1 else part
            if parts and isinstance(text, str) and isinstance(parts[-1], str):
                parts[-1] += text
            else:
                parts.append(text)
        return Shape(tuple(parts), self.escapes)

    def bare(self) -> frozenset[str] | None:
        """The characters that no field holds bare; ``None`` without a field: all of them."""
        if not any(isinstance(part, int) for part in self.parts):
            return None
        return frozenset(map(chr, self.escapes)) - _HEX


@dataclass(frozen=True, slots=True)
class Alignment:
    """What must hold where keys of two shapes are equal."""

    fields: tuple[tuple[int, int], ...] = ()
    """Which field of the one must hold the text that a field of the other holds."""
    of_one: tuple[tuple[int, str], ...] = ()  # which of the one's fields must hold which text
    of_other: tuple[tuple[int, str], ...] = ()  # the same of the other's

    def turned(self) -> Alignment:
        """The same, seen from the other."""
        turned = tuple((there, here) for here, there in self.fields)
        return Alignment(turned, self.of_other, self.of_one)

    def allows(self, one: tuple[Texts, ...], other: tuple[Texts, ...]) -> bool:
        """Whether it can hold for fields with these texts."""
        return (
            all(one[here].meets(other[there]) for here, there in self.fields)
            and all(text in one[number] for number, text in self.of_one)
            and all(text in other[number] for number, text in self.of_other)
        )


def align(one: Shape, other: Shape) -> Alignment | None:
    """What must hold where keys of these shapes are equal; ``None``: they never are."""
    if one == other:  # rendering is injective
        return Alignment(tuple((part, part) for part in one.parts if isinstance(part, int)))
    here, there = one.bare(), other.bare()
    bare = here & there if here is not None and there is not None else here or there or frozenset()
    (marks, first), (other_marks, second) = _split(one, bare), _split(other, bare)
    if marks != other_marks:
        return None
    fields: list[tuple[int, int]] = []
    of_one: list[tuple[int, str]] = []
    of_other: list[tuple[int, str]] = []
    for a, b in zip(first, second, strict=True):
        match _only(a), _only(b):
            case int(mine), int(its):
                fields.append((mine, its))
            case int(mine), str(text) if _can_hold(one, text):
                of_one.append((mine, text))
            case str(text), int(its) if _can_hold(other, text):
                of_other.append((its, text))
            case str(text), str(same) if text == same:
                pass
            case None, None | int() | str() if _may_be_one(a, b):
                pass
            case int() | str(), None if _may_be_one(a, b):
                pass
            case _:
                return None
    return Alignment(tuple(fields), tuple(of_one), tuple(of_other))


def _only(parts: list[Part]) -> Part | None:
    """The one text or field; ``None`` where there are more."""
    return None if parts[1:] else (parts or [""])[0]


def _split(shape: Shape, bare: frozenset[str]) -> tuple[str, list[list[Part]]]:
    """The bare characters in their order, and what stands between them."""
    found = ""
    between: list[list[Part]] = [[]]
    for part in shape.parts:
        if isinstance(part, int):
            between[-1].append(part)
            continue
        for character in part:
            last = between[-1]
            if character in bare:
                found += character
                between.append([])
            elif last and isinstance(last[-1], str):
                last[-1] += character
            else:
                last.append(character)
    return found, between


def _edge(parts: tuple[Part, ...] | list[Part], at: int) -> str:
    edge = parts[at] if parts else ""
    return edge if isinstance(edge, str) else ""


def _may_be_one(a: list[Part], b: list[Part]) -> bool:
    if not a or not b:
        return False
    begins, ends = (_edge(a, 0), _edge(b, 0)), (_edge(a, -1), _edge(b, -1))
    return (begins[0].startswith(begins[1]) or begins[1].startswith(begins[0])) and (
        ends[0].endswith(ends[1]) or ends[1].endswith(ends[0])
    )


def _can_hold(shape: Shape, text: str) -> bool:
    """Whether a field of this shape can be rendered as this text."""
    piece = AnyBut(shape.escapes, Trie(), Trie(shape.escapes.values()))
    at: tuple[bool, int, int] | None = piece.start
    for character in text:
        at = piece.step(at, character) if at else None
    return at is not None and piece.ends(at)
