"""A body's values are counted before they are made; numbers stay as they were written."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupflow.core.errors import Unroutable
from groupflow.core.json_text import has_over, read_exactly, write_exactly
from groupflow.settings.model import Settings

MIB = 2**20
ROUTER = Settings().router()


def object_of(unit: bytes, size: int) -> bytes:
    """A JSON object of some bytes that holds one thing again and again."""
    return b'{"type":"t","a":[' + b",".join([unit] * (size // (len(unit) + 1))) + b"]}"


@pytest.mark.parametrize("unit", [b"[]", b'{"a":1}', b"1", b'"x"'])
def test_16_mib_of_values_are_refused_without_making_them(unit: bytes) -> None:
    """16 MiB of brackets became 817 MB."""
    body = object_of(unit, 16 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(Unroutable, match=r"rabbitmq\.max_values = 1000000"):
            ROUTER.route(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


def test_a_large_body_of_few_values_is_as_welcome_as_ever() -> None:
    rows = b'1,2;[a],{b}\\n\\"' * MIB
    assert ROUTER.route(b'{"type":"t","csv":"' + rows + b'"}').type == "t"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.sampled_from('a"\\,[{}]é\n'), max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=40,
)


def count(value: Any) -> int:
    """Commas, brackets and braces of a value's JSON, outside its strings."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(0, len(value) - 1) + sum(count(each) for each in inner)


@given(values, st.booleans())
@settings(max_examples=100)
def test_values_are_counted_outside_strings(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    number = count(value)
    assert not has_over(body, number)
    assert number == 0 or has_over(body, number - 1)


@pytest.mark.parametrize(
    "piece", [b'"', b"\\", b'\\"', b'"\\"', b'""', b'"a",', b"[", b'"a', b'",', b"\\\\"]
)
@pytest.mark.parametrize("before", [b"", b'"', b'["'])
def test_no_body_is_read_again_and_again(before: bytes, piece: bytes) -> None:
    """4 MiB of each; what is read more than once a byte would not end while anybody waits."""
    has_over(before + piece * (4 * MIB // len(piece)), 1_000_000)


LONG = b'{"n":123456789012345678901234567890,"m":-98765432109876543210}'


@pytest.mark.parametrize("packed", [LONG, b'{"a":[1,2.5,"x",null,true]}', b'"12345678901234567"'])
def test_it_comes_back_as_it_was(packed: bytes) -> None:
    assert write_exactly(read_exactly(packed)) == packed


@pytest.mark.parametrize(
    "packed", [b"[12345678901234567, NaN]", b"[12345678901234567", b"\xff12345678901234567", b"{"]
)
def test_what_is_no_json_is_refused(packed: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_exactly(packed)


@pytest.mark.parametrize("value", [[2**70, float("nan")], {1, 2}])
def test_what_json_has_no_word_for_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        write_exactly(value)
