"""What tells two keys apart without a search agrees with the search."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from groupflow.core.template import Template, TemplateError
from groupflow.settings.meetings.languages import (
    AnyBut,
    Budget,
    OneOf,
    Piece,
    Trie,
    Undecided,
    find_shared,
)
from groupflow.settings.meetings.shapes import Part, Shape, Texts, align

literals = st.text(st.sampled_from(":-x2A%é"), max_size=3)
keys = st.lists(st.tuples(literals, st.sampled_from(["", "{f}"])), min_size=1, max_size=4).map(
    lambda parts: "".join(literal + field for literal, field in parts)
)
names = st.frozensets(st.text(st.sampled_from(":-x2A%é"), min_size=1, max_size=3), max_size=3)


@given(keys, keys, st.lists(st.tuples(names, st.booleans()), min_size=8, max_size=8))
@settings(max_examples=300)
def test_what_is_told_apart_has_no_key_in_common(
    one: str, other: str, held: list[tuple[frozenset[str], bool]]
) -> None:
    try:
        templates = Template.parse(one), Template.parse(other)
    except TemplateError:
        return
    shapes = [shape_of(template) for template in templates]
    texts = [texts_of(shapes[0], held[:4]), texts_of(shapes[1], held[4:])]
    how = align(*shapes)
    if how is not None and how.allows(*texts):
        return
    pieces = [pieces_of(shape, can) for shape, can in zip(shapes, texts, strict=True)]
    try:
        assert find_shared(pieces[0], pieces[1], Budget(20_000)) is None
    except Undecided:
        return


def shape_of(template: Template) -> Shape:
    parts: list[Part] = []
    for part in template.parts:
        parts.append(part if isinstance(part, str) else sum(isinstance(p, int) for p in parts))
    return Shape(tuple(parts), template.escapes)


def texts_of(shape: Shape, held: list[tuple[frozenset[str], bool]]) -> tuple[Texts, ...]:
    return tuple(
        Texts(frozenset(text.translate(shape.escapes) for text in names), but=but or not names)
        for names, but in held
    )


def pieces_of(shape: Shape, texts: tuple[Texts, ...]) -> list[Piece]:
    encoded = Trie(shape.escapes.values())
    pieces: list[Piece] = []
    for part in shape.parts:
        if isinstance(part, str):
            pieces.append(OneOf(Trie([part])))
        else:
            can = texts[part]
            trie = Trie(can.names)
            pieces.append(AnyBut(shape.escapes, trie, encoded) if can.but else OneOf(trie))
    return pieces
