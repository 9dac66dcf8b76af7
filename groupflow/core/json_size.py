"""How many values a JSON text has, counted before it is parsed: each takes far more than its bytes.

16 MiB of brackets are valid JSON, and 8 million lists of some 60 bytes each. How deep they lie in
each other needs no count of its own: orjson refuses what is nested over 1,024 deep.
"""

from __future__ import annotations

import re

_BEFORE_A_VALUE = (b",", b"[", b"{")
_RUN = 1000  # strings that one match reads, which is how long another thread waits
# Possessive, so that each byte is read once, in any text.
_STRINGS = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.)*+"){1,%d}+' % _RUN, re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


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
