"""JSON whose numbers stay as they were written: orjson makes floats of whole numbers over 64 bits.

The standard library keeps them, and is slower; so it is asked only where there may be one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_LONG_NUMBER = re.compile(rb"\d{17}")


def may_lose(packed: bytes) -> bool:
    """Whether there may be a number that orjson would not keep."""
    return _LONG_NUMBER.search(packed) is not None


def read_exactly(packed: bytes) -> Any:
    """The value; ValueError or RecursionError where it is none."""
    if may_lose(packed):
        return json.loads(packed.decode(), parse_constant=_refuse)
    return orjson.loads(packed)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def write_exactly(value: Any) -> bytes:
    """The value as JSON; TypeError, ValueError or RecursionError where it can't be."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a number that is too long, for one
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
