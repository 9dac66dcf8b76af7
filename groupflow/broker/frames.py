"""Reads any bytes that strangers put into AMQP properties.

RabbitMQ checks the layout of a message's properties, but not their content. pamqp refuses a message
id, a type or a header's name that isn't UTF-8, a time beyond the year 9999, and tables nested some
hundred deep: aiormq then closes the connection, RabbitMQ hands the message out again, and so on for
ever. One message would stop intake for all. So this module reads these kinds, and never refuses: it
writes bytes that aren't text in hex, and cuts what is too much; admission judges the rest.

The cost is linear in the bytes: a value ends where its table or list ends, so each byte is read
once; and a table holds at most `VALUES` values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import pamqp.decode

from groupflow.core.headers import as_text

DEPTH = 32  # levels of nested tables and lists that are read; deeper values are left out
VALUES = 1024  # of a table that are read, nested ones too: a value takes more memory than its bytes
_MILLISECONDS_FROM = 0xFFFFFFFF  # seconds up to the year 2106; more is likely milliseconds


class Table(dict[str, Any]):
    """A table as it was read."""

    size = 0  # bytes that it took
    count = 0  # values that were read, nested ones too
    is_cut = False  # there were more than `VALUES`


@dataclass(slots=True)
class _Source:
    """The bytes of a table, and how much of them may still be read."""

    data: bytes
    left: int = VALUES
    is_cut: bool = False

    def goes_on(self, at: int, end: int, depth: int) -> bool:
        """Whether there is another value to read before `end`."""
        if not depth or at >= end:
            return False
        if not self.left:
            self.is_cut = True
            return False
        self.left -= 1
        return True


# Source, where to begin, where to end at most, levels left; returns where it ended, and the value.
Reader: TypeAlias = Callable[[_Source, int, int, int], tuple[int, Any]]


def tolerate_strangers() -> None:
    """Have pamqp read these kinds with the functions below, in this whole process.

    Only consumers of strangers' messages call it: in an application that publishes, other code may
    use pamqp too.
    """
    pamqp.decode.METHODS.update(
        {"shortstr": short_string, "table": table, "timestamp": timestamp},
    )


def short_string(value: bytes) -> tuple[int, str]:
    """A short text; bytes that aren't UTF-8 in hex."""
    end = 1 + value[0]
    return end, as_text(value[1:end])


def timestamp(value: bytes) -> tuple[int, Any]:
    """A time, or the number where `datetime` can't hold it."""
    return _time(_Source(value), 0, len(value), 0)


def table(value: bytes) -> tuple[int, Table]:
    """A table of headers. What can't be read ends it; its length says where the rest goes on."""
    source = _Source(value)
    end, found = _table(source, 0, len(value), DEPTH)
    found.size = end
    found.count = VALUES - source.left
    found.is_cut = source.is_cut
    return end, found


def _bounds(source: _Source, at: int, end: int) -> tuple[int, int]:
    """Where a length-prefixed value begins and ends: never beyond its container."""
    begin = at + 4
    if begin > end:
        raise struct.error
    length: int = struct.unpack_from(">I", source.data, at)[0]
    return begin, min(begin + length, end)


def _table(source: _Source, at: int, end: int, depth: int) -> tuple[int, Table]:
    at, end = _bounds(source, at, end)
    found = Table()
    try:
        while source.goes_on(at, end, depth):
            name_end = at + 1 + source.data[at]
            name = as_text(source.data[at + 1 : min(name_end, end)])
            at, found[name] = _value(source, name_end, end, depth)
    except (LookupError, struct.error):
        pass
    return end, found


def _list(source: _Source, at: int, end: int, depth: int) -> tuple[int, list[Any]]:
    at, end = _bounds(source, at, end)
    found: list[Any] = []
    try:
        while source.goes_on(at, end, depth):
            at, value = _value(source, at, end, depth)
            found.append(value)
    except (LookupError, struct.error):
        pass
    return end, found


def _value(source: _Source, at: int, end: int, depth: int) -> tuple[int, Any]:
    if at >= end:
        raise struct.error
    return _READERS[source.data[at]](source, at + 1, end, depth - 1)


def _unpack(shape: struct.Struct, source: _Source, at: int, end: int) -> tuple[int, Any]:
    if at + shape.size > end:
        raise struct.error
    found = shape.unpack_from(source.data, at)
    return at + shape.size, found[0] if len(found) == 1 else found


def _fixed(layout: str) -> Reader:
    shape = struct.Struct(">" + layout)

    def read(source: _Source, at: int, end: int, _depth: int) -> tuple[int, Any]:
        return _unpack(shape, source, at, end)

    return read


_TIME = struct.Struct(">Q")
_DECIMAL = struct.Struct(">Bi")


def _time(source: _Source, at: int, end: int, _depth: int) -> tuple[int, Any]:
    end, number = _unpack(_TIME, source, at, end)
    seconds: float = number / 1000 if number > _MILLISECONDS_FROM else number
    try:
        return end, datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return end, number


def _decimal(source: _Source, at: int, end: int, _depth: int) -> tuple[int, Any]:
    end, (places, digits) = _unpack(_DECIMAL, source, at, end)
    return end, Decimal(digits).scaleb(-places)


def _long_string(source: _Source, at: int, end: int, depth: int) -> tuple[int, Any]:
    end, value = _bytes(source, at, end, depth)
    try:
        return end, value.decode()
    except UnicodeDecodeError:
        return end, value


def _bytes(source: _Source, at: int, end: int, _depth: int) -> tuple[int, Any]:
    at, end = _bounds(source, at, end)
    return end, source.data[at:end]


def _nothing(_source: _Source, at: int, _end: int, _depth: int) -> tuple[int, Any]:
    return at, None


# By the letters of https://www.rabbitmq.com/amqp-0-9-1-errata.html
_READERS: dict[int, Reader] = {
    ord(letter): read
    for letter, read in {
        "t": _fixed("?"),
        "b": _fixed("b"),
        "B": _fixed("B"),
        "s": _fixed("h"),
        "u": _fixed("H"),
        "I": _fixed("i"),
        "i": _fixed("I"),
        "l": _fixed("q"),
        "L": _fixed("q"),
        "f": _fixed("f"),
        "d": _fixed("d"),
        "D": _decimal,
        "S": _long_string,
        "A": _list,
        "T": _time,
        "F": _table,
        "V": _nothing,
        "\0": _nothing,
        "x": _bytes,
    }.items()
}
