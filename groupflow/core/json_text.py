"""JSON texts: numbers that stay as they were written, and how many values there are.

orjson makes floats of whole numbers over 64 bits. The standard library keeps them, and is slower;
so it reads only texts that may have one. It also takes what orjson refuses: numbers beyond a float,
half a character. This module refuses those too.

Values are counted before a text is parsed, as each takes far more than its bytes: 16 MiB of
brackets are valid JSON, and 8 million lists of some 60 bytes each. How deep they lie in each other
needs no count of its own: orjson refuses what is nested over 1,024 deep.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import orjson

_LONG_NUMBER = re.compile(rb"\d{17}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN = 40  # characters of a number
_DEEPEST = 2048  # calls more than usual: twice as deep as orjson reads a body
_BEFORE_A_VALUE = (b",", b"[", b"{")
_RUN = 1000  # strings that one match reads, which is how long another thread waits
# Possessive, so that each byte is read once, in any text.
_STRINGS = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.)*+"){1,%d}+' % _RUN, re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Unkeepable(ValueError):
    """JSON as its grammar has it, with a number or a text in it that can't be kept."""


def may_lose(packed: bytes) -> bool:
    """Whether there may be a number that orjson would not keep."""
    return _LONG_NUMBER.search(packed) is not None


def read_exactly(packed: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        Unkeepable: a number is beyond what can be kept, or a text has half a character.
        ValueError: it is no JSON.
        RecursionError: it is nested too deep.
    """
    if may_lose(packed):
        return _read_slowly(packed)
    try:
        return orjson.loads(packed)
    except orjson.JSONDecodeError:
        _read_slowly(packed)  # says so where it is JSON that can't be kept
        raise


def _read_slowly(packed: bytes) -> Any:
    text = packed.decode()
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (json.JSONDecodeError, Unkeepable):
        raise
    except ValueError as error:  # Python's limit of a whole number's digits
        raise Unkeepable(str(error)) from None
    if _SURROGATE.search(packed):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            found = ord(error.object[error.start])
            raise Unkeepable(f"half a character, U+{found:04X}") from None
    return value


def _refuse(word: str) -> NoReturn:
    raise json.JSONDecodeError(f"{word} is no number of JSON", word, 0)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Unkeepable(f"the number {text[:_SHOWN]} is beyond what a float can be")
    return number


def write_exactly(value: Any) -> bytes:
    """The value as JSON; TypeError, ValueError or RecursionError where it can't be."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a number that is too long, for one
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


@contextmanager
def _deep() -> Iterator[None]:
    """Let Python's own reader and writer follow JSON as deep as a body may be, and around it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + _DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def read_deeply(packed: bytes) -> Any:
    """The same as `read_exactly` of a text that bodies stand in, however deep these are.

    Raises:
        ValueError: it is no JSON, or has a number that can't be kept.
    """
    with _deep():
        try:
            return read_exactly(packed)
        except ValueError:  # orjson doesn't follow so deep
            return json.loads(packed)


def write_deeply(value: Any) -> bytes:
    """A body as JSON; it may be nested deeper than `write_exactly` follows."""
    with _deep():
        return write_exactly(value)


def has_over(body: bytes, most: int) -> bool:
    """Whether there are more values than `most`, by the commas, brackets and braces before them.

    Those within strings don't count. For text that isn't JSON the answer may be wrong; parsing
    refuses it.
    """
    if len(body) <= most or _count(body) <= most:
        return False
    found = strings = at = 0
    # Anchored each time: a search would try again from every byte of text that doesn't match.
    while run := _STRINGS.match(body, at):
        at = run.end()
        found += _count(_STRING.sub(b"", run.group()))
        strings += _RUN
        if found > most:
            return True
        if strings > 2 * found + 2 * _RUN:  # more than names and values: it isn't JSON
            return False
    # Behind the last string. A quote here begins a string without an end: it isn't JSON.
    quote = body.find(b'"', at)
    return found + _count(body, at, len(body) if quote < 0 else quote) > most


def _count(text: bytes, start: int = 0, end: int | None = None) -> int:
    return sum(text.count(sign, start, end) for sign in _BEFORE_A_VALUE)


def detail_of(answer: str) -> str:
    """What a refusal says: the detail of its problem (RFC 9457), or its beginning."""
    try:
        return str(orjson.loads(answer)["detail"])
    except (ValueError, KeyError, TypeError):
        return answer[:500]
