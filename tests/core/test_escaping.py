"""Text for terminals and logs: the same text, and nothing in it that isn't seen."""

from __future__ import annotations

import sys
import unicodedata

import orjson

from groupflow.core.escaping import plain_json, plain_text

EVERY = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
UNSEEN = {
    char
    for char in EVERY
    if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")
    or unicodedata.bidirectional(char) in TURNING
} | {"\u061c", "\u200e", "\u200f"}


def test_text_is_printable_and_on_one_line() -> None:
    assert plain_text(EVERY).isprintable()
    assert plain_text("\ud800") == "\\ud800"
    assert plain_text("a\x1b[31m\n\x9b\u202e") == r"a\x1b[31m\n\x9b\u202e"
    assert plain_text("租户 🐘 é") == "租户 🐘 é"


def test_json_has_the_same_value_and_nothing_unseen() -> None:
    value = {EVERY: [EVERY, {"é 租户 🐘": 1.5}]}
    text = plain_json(orjson.dumps(value).decode())
    assert orjson.loads(text) == value
    assert not set(text) & UNSEEN
    assert "é 租户 🐘" in text
