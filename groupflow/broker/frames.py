"""Reading what strangers put into AMQP properties, whatever the bytes are.

RabbitMQ checks how a message's properties are laid out, but not what is in them. pamqp refuses a
message id, a type or a header's name that isn't UTF-8, a time beyond the year 9999, and tables
nested some hundred deep: aiormq then closes the connection, RabbitMQ hands the message out again,
and so on for ever. One message would stop intake for all. So these kinds are read here, and never
refused: what isn't text is escaped, what is too much is cut, and admission judges the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import pamqp.decode

DEPTH = 32  # of nested tables and lists that is read; what lies deeper is left out
_MILLISECONDS_FROM = 0xFFFFFFFF  # seconds up to the year 2106; more is likely milliseconds

Reader: TypeAlias = Callable[[bytes, int, int], tuple[int, Any]]


def tolerate_strangers() -> None:
    """Have pamqp read these kinds with the functions below."""
    pamqp.decode.METHODS.update(
        {"shortstr": short_string, "table": table, "timestamp": timestamp},
    )


def short_string(value: bytes) -> tuple[int, str]:
    """A short text; what isn't UTF-8 is escaped."""
    end = 1 + value[0]
    return end, _text(value[1:end])


def timestamp(value: bytes) -> tuple[int, Any]:
    """A time, or the bare number where no calendar has it."""
    return _time(value, 0, 0)


def table(value: bytes) -> tuple[int, dict[str, Any]]:
    """A table of headers. What can't be read ends it; its length says where the rest goes on."""
    return _table(value, 0, DEPTH)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _length(data: bytes, at: int) -> int:
    length: int = struct.unpack_from(">I", data, at)[0]
    return length


def _table(data: bytes, at: int, depth: int) -> tuple[int, dict[str, Any]]:
    end = at + 4 + _length(data, at)
    found: dict[str, Any] = {}
    at += 4
    try:
        while depth and at < end:
            name_end = at + 1 + data[at]
            name = _text(data[at + 1 : name_end])
            at, found[name] = _value(data, name_end, depth)
    except (LookupError, struct.error):
        pass
    return end, found


def _list(data: bytes, at: int, depth: int) -> tuple[int, list[Any]]:
    end = at + 4 + _length(data, at)
    found: list[Any] = []
    at += 4
    try:
        while depth and at < end:
            at, value = _value(data, at, depth)
            found.append(value)
    except (LookupError, struct.error):
        pass
    return end, found


def _value(data: bytes, at: int, depth: int) -> tuple[int, Any]:
    return _READERS[data[at]](data, at + 1, depth - 1)


def _fixed(layout: str) -> Reader:
    shape = struct.Struct(">" + layout)

    def read(data: bytes, at: int, _depth: int) -> tuple[int, Any]:
        return at + shape.size, shape.unpack_from(data, at)[0]

    return read


def _time(data: bytes, at: int, _depth: int) -> tuple[int, Any]:
    seconds: float = struct.unpack_from(">Q", data, at)[0]
    if seconds > _MILLISECONDS_FROM:
        seconds /= 1000
    try:
        return at + 8, datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return at + 8, struct.unpack_from(">Q", data, at)[0]


def _decimal(data: bytes, at: int, _depth: int) -> tuple[int, Any]:
    places, digits = struct.unpack_from(">Bi", data, at)
    return at + 5, Decimal(digits).scaleb(-places)


def _long_string(data: bytes, at: int, _depth: int) -> tuple[int, Any]:
    end = at + 4 + _length(data, at)
    value = data[at + 4 : end]
    try:
        return end, value.decode()
    except UnicodeDecodeError:
        return end, value


def _bytes(data: bytes, at: int, _depth: int) -> tuple[int, Any]:
    end = at + 4 + _length(data, at)
    return end, data[at + 4 : end]


def _nothing(_data: bytes, at: int, _depth: int) -> tuple[int, Any]:
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
