"""Key templates: what they read, what they refuse, and that no two values share a key."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupflow.core.errors import Unroutable
from groupflow.core.template import MISSING, FieldPath, Template, TemplateError, show

BODY: dict[str, Any] = {
    "meta_obj_name": "contact",
    "tenant_id": 42,
    "meta": {"entity": "deal", "0": "zero", "rows": [{"id": 7}]},
    "header": "field",
    "a:b": "colon",
    "c!r": "mark",
    "d[": "bracket",
    "long": "x" * 512,
    "unusual": "a\u2028\u00a0é😀",
    "percent": "100%:x",
    "bar": "|",
}


def render(template: str, body: dict[str, Any], **headers: Any) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Template.parse(template).render(body, named, "r")


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("{meta_obj_name}:{tenant_id}", "contact:42"),
        ("{meta.entity}", "deal"),
        ("{meta.0}", "zero"),
        ("{meta.rows.0.id}", "7"),
        ("{header.x-e}/{header}", "from header/field"),
        ("{{{tenant_id}}}", "{42}"),
        ("{a:b}-{c!r}-{d[}", "colon-mark-bracket"),
        ("all", "all"),
        # Of values long and unusual; separators in them are encoded.
        *((f"{{{name}}}", BODY[name]) for name in ("long", "unusual", "percent")),
        ("{percent}:{tenant_id}", "100%25%3Ax:42"),
        ("{tenant_id}|||{bar}", "42|||%7C"),
    ],
)
def test_renders(template: str, key: str) -> None:
    assert render(template, BODY, x_e="from header") == key


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("", "empty"),
        ("{a", "character 1"),
        ("ab{a{b}}", "character 3"),
        ("a}b", "character 2"),
        ("{}", "character 1"),
        ("x{a..b}", "character 2"),
        ("{ a }", "blank-edged"),
        ("{header.}", "character 1"),
        ("{a}{b}", "character 4 two fields touch"),
        ("{a}%{b}", "can't have %"),
        ("a\x00b", "control character"),
        ("a" * 1025, "longer"),
    ],
)
def test_wrong_templates_say_where(template: str, said: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template.parse(template)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "is missing"),
        ("", "is missing"),
        (True, "true or false"),
        (1.5, "a number with a fraction"),
        (1.2345678901234568e29, "beyond 64 bits"),
        ({"a": 1}, "an object of 1"),
        ([1], "a list of 1"),
        (b"x", "bytes"),
        ("a\x00b", "U+0000 at 1"),
        ("a\nb", "U+000A"),
        ("a\x7fb", "U+007F"),
        ("a\x85b", "U+0085"),
        ("a\ud800b", "U+D800"),
        ("x" * 600, "over 512 bytes"),
        ("é" * 300, "over 512 bytes"),
    ],
)
def test_values_that_cannot_be_keys(value: Any, said: str) -> None:
    with pytest.raises(Unroutable) as caught:
        render("{a}", {"a": value})
    assert said in caught.value.reason
    assert "'r'" in caught.value.reason
    assert caught.value.reason.isprintable()
    assert caught.value.reason.isascii() or "…" in caught.value.reason
    assert len(caught.value.reason) < 250


@pytest.mark.parametrize(
    "template", ["{a}:{b}", "{a}2{b}", "{a}a:{b}", "5{a}5{b}%25", "x{a} - {b}y", "{a}::{b}"]
)
def test_no_two_messages_share_a_key(template: str) -> None:
    """All values of up to four characters, of those that escapes are made of."""
    values = ["".join(v) for n in (1, 2, 3, 4) for v in itertools.product("a:%25", repeat=n)]
    parsed = Template.parse(template)
    keys = {parsed.render({"a": a, "b": b}, {}, "r") for a in values for b in values[:155]}
    assert len(keys) == len(values) * 155


def test_paths_find_or_miss() -> None:
    for path in ("nope", "meta.nope.x", "meta.rows.9", "meta.rows.x", "tenant_id.x", "meta.rows.²"):
        assert FieldPath.parse(path).find(BODY, {}) is MISSING
    assert FieldPath.parse("header.a.b").find({}, {"a.b": 1}) == 1


@pytest.mark.parametrize("path", ["a.b", "n", "header.a.b"])
def test_what_is_put_is_found(path: str) -> None:
    body: dict[str, Any] = {"a": {"c": 1}, "n": 7}
    headers: dict[str, Any] = {"a.b": 1}
    FieldPath.parse(path).put(body, headers, "7")
    assert str(FieldPath.parse(path).find(body, headers)) == "7"


@pytest.mark.parametrize(
    ("path", "said"), [("a.b", "another {a.b}"), ("a.b.c", "something else where {a.b.c} is to be")]
)
def test_nothing_is_put_over_something_else(path: str, said: str) -> None:
    with pytest.raises(Unroutable, match=said):
        FieldPath.parse(path).put({"a": {"b": 1}}, {}, "7")


@given(st.one_of(st.text(), st.binary(), st.floats(), st.integers(), st.lists(st.text())))
def test_shown_values_are_one_short_line(value: Any) -> None:
    text = show(value)
    assert text.isprintable()
    assert len(text) <= 81
