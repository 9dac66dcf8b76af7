"""The keys that a template can make, as an automaton, and a key that two of them share.

A template's keys are a regular language: literal text, and between it fields, each of them any text
(less what must be percent-encoded there), any but some, or one of some. So a walk through both side
by side decides whether two languages share a key, and finds the shortest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Node: TypeAlias = int
"""A place in a `Trie`; 0 is its root, `OFF` is none of its places."""

OFF = -1
LONGEST = 10_000  # steps of one walk, each of one character from one pair of places


class Undecided(Exception):
    """The walk ended before it found a shared key or a proof of none."""


class Budget:
    """How many steps may still be walked, in all walks together."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take some.

        Raises:
            Undecided: there are none left.
        """
        self.left -= steps
        if self.left < 0:
            raise Undecided


class Trie:
    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._next: list[dict[str, Node]] = [{}]
        self._ends: set[Node] = set()
        self._characters: set[str] = set()
        for text in texts:
            self._characters.update(text)
            node = 0
            for character in text:
                node = self._next[node].setdefault(character, len(self._next))
                if node == len(self._next):
                    self._next.append({})
            self._ends.add(node)

    def step(self, node: Node, character: str) -> Node:
        """Where a character leads; `OFF` where no text goes on so."""
        return OFF if node == OFF else self._next[node].get(character, OFF)

    def offers(self, node: Node) -> Collection[str]:
        """The characters that lead on."""
        return self._next[node]

    def ends(self, node: Node) -> bool:
        """Whether one of the texts ends here."""
        return node in self._ends

    def characters(self) -> set[str]:
        """All that any of the texts has."""
        return self._characters


class Piece(Protocol):
    """A part of a key; only it knows what its places are."""

    @property
    def start(self) -> Any:
        """The place before its first character."""

    def step(self, at: Any, character: str) -> Any:
        """The place behind a character; ``None`` where the character can't stand."""

    def ends(self, at: Any) -> bool:
        """Whether it may end here."""

    def offers(self, at: Any) -> Collection[str] | None:
        """The characters that lead on, ``None`` where too many do."""

    def characters(self) -> set[str]:
        """The characters that it tells from others."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some texts, as rendered. A place is a node of their trie."""

    texts: Trie

    start = 0

    def step(self, at: Node, character: str) -> Node | None:
        node = self.texts.step(at, character)
        return None if node == OFF else node

    def ends(self, at: Node) -> bool:
        return self.texts.ends(at)

    def offers(self, at: Node) -> Collection[str] | None:
        return self.texts.offers(at)

    def characters(self) -> set[str]:
        return self.texts.characters()


@dataclass(frozen=True, slots=True)
class AnyBut:
    """Any text but some, with what must be percent-encoded in it.

    A place: whether it has begun, where in a percent-encoded character, where in an excluded text.
    """

    escapes: Mapping[int, str]
    excluded: Trie
    encoded: Trie

    start = (False, 0, 0)

    def step(self, at: tuple[bool, Node, Node], character: str) -> tuple[bool, Node, Node] | None:
        _, escape, excluded = at
        excluded = self.excluded.step(excluded, character)
        if escape or (self.escapes and character == "%"):
            escape = self.encoded.step(escape, character)
            if escape == OFF:
                return None
            return (True, 0 if self.encoded.ends(escape) else escape, excluded)
        return None if ord(character) in self.escapes else (True, 0, excluded)

    def ends(self, at: tuple[bool, Node, Node]) -> bool:
        has_begun, escape, excluded = at
        return has_begun and not escape and not (excluded != OFF and self.excluded.ends(excluded))

    def offers(self, at: tuple[bool, Node, Node]) -> Collection[str] | None:
        return self.encoded.offers(at[1]) if at[1] else None

    def characters(self) -> set[str]:
        return self.excluded.characters() | self.encoded.characters()


Place: TypeAlias = tuple[int, Any]
"""Where in a key: in which piece, and where in that."""


def find_shared(
    one: Sequence[Piece], other: Sequence[Piece], budget: Budget
) -> tuple[list[str], list[str]] | None:
    """The shortest key of both languages, as the texts of either's pieces; ``None``: there is none.

    Raises:
        Undecided: the budget is spent, or this walk alone has taken `LONGEST` steps.
    """
    own = Budget(LONGEST)
    characters = _characters(one, other)
    start: tuple[Place, Place] = (0, one[0].start), (0, other[0].start)
    came_from: dict[tuple[Place, Place], tuple[tuple[Place, Place], str]] = {}
    waiting = deque([start])
    seen = {start}
    while waiting:
        pair = waiting.popleft()
        if _is_end(one, pair[0]) and _is_end(other, pair[1]):
            return _texts(pair, came_from, len(one), len(other))
        offered = _offers(one, other, pair, characters)
        for spender in (own, budget):
            spender.spend(len(offered))
        for character in offered:
            for here in _steps(one, pair[0], character):
                for there in _steps(other, pair[1], character):
                    if (here, there) not in seen:
                        seen.add((here, there))
                        came_from[here, there] = pair, character
                        waiting.append((here, there))
    return None


def _characters(one: Sequence[Piece], other: Sequence[Piece]) -> list[str]:
    """The characters that either language tells apart; first one that stands for all others."""
    known: set[str] = set().union(*(piece.characters() for piece in (*one, *other)))
    spare = next(
        c for c in map(chr, [*range(ord("a"), 0x7F), *range(0xC0, 0xFFFF)]) if c not in known
    )
    return [spare, *sorted(known)]


def _offers(
    one: Sequence[Piece], other: Sequence[Piece], pair: tuple[Place, Place], characters: list[str]
) -> Collection[str]:
    """The characters that may lead on from both."""
    here, there = (
        pieces[index].offers(at) for pieces, (index, at) in zip((one, other), pair, strict=True)
    )
    few = [each for each in (here, there) if each is not None]
    return min(few, key=len) if few else characters


def _steps(pieces: Sequence[Piece], place: Place, character: str) -> Iterator[Place]:
    index, at = place
    after = pieces[index].step(at, character)
    if after is None:
        return
    yield index, after
    if index + 1 < len(pieces) and pieces[index].ends(after):
        yield index + 1, pieces[index + 1].start


def _is_end(pieces: Sequence[Piece], place: Place) -> bool:
    index, at = place
    return index == len(pieces) - 1 and pieces[index].ends(at)


def _texts(
    pair: tuple[Place, Place],
    came_from: Mapping[tuple[Place, Place], tuple[tuple[Place, Place], str]],
    *lengths: int,
) -> tuple[list[str], list[str]]:
    """The text of each piece on the way to this pair; a character belongs to the piece it left."""
    one, other = ([""] * length for length in lengths)
    while pair in came_from:
        pair, character = came_from[pair]
        for texts, (index, _) in zip((one, other), pair, strict=True):
            texts[index] = character + texts[index]
    return one, other
