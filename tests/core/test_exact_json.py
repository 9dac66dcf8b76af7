"""Numbers stay as they were written, and what is no JSON is refused."""

from __future__ import annotations

import pytest

from groupflow.core.exact_json import read_exactly, write_exactly

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


def test_what_json_has_no_word_for_is_refused() -> None:
    with pytest.raises((TypeError, ValueError)):
        write_exactly([2**70, float("nan")])
    with pytest.raises(TypeError):
        write_exactly({1, 2})
