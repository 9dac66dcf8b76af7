"""JSON whose numbers stay as they were written: orjson makes floats of whole numbers over 64 bits.

The standard library keeps them, and is slower; so it reads only texts that may have one. It also
takes what orjson refuses: numbers beyond a float, half a character. This module refuses those too.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

_LONG_NUMBER = re.compile(rb"\d{17}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN = 40  # characters of a number


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
