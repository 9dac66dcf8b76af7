"""Reads any bytes that strangers put into AMQP properties.

RabbitMQ checks the layout of a message's properties, but not their content. pamqp refuses a message
id, a type or a header's name that isn't UTF-8, a time beyond the year 9999, and tables nested some
hundred deep: aiormq then closes the connection, RabbitMQ hands the message out again, and so on for
ever. One message would stop intake for all. So this module reads these kinds, and never raises: it
writes bytes that aren't text in hex, and cuts what is too much; admission judges the rest.

The cost is linear in the bytes: a value ends where its table or list ends, so each byte is read
once; and a table holds at most `VALUES` values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pamqp.decode

from groupflow.core.headers import as_text

DEPTH = 32  # levels of nested tables and lists that are read; deeper values are left out
VALUES = 1024  # of a table that are read, nested ones too: a value takes more memory than its bytes

_FIXED = 8  # bytes at most of a value that has no length in front


class FieldTable(dict[str, Any]):
    """A table as it was read."""

    size = 0  # bytes that it took
    count = 0  # values that were read, nested ones too
    is_cut = False  # there were more than `VALUES`


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
    end = 1 + int.from_bytes(value[:1])
    return end, as_text(value[1:end])


def timestamp(value: bytes) -> tuple[int, Any]:
    """A time, or the number where `datetime` can't hold it."""
    try:
        return pamqp.decode.timestamp(value)
    except (ValueError, OverflowError, OSError):
        return 8, int.from_bytes(value[:8])


def table(value: bytes) -> tuple[int, FieldTable]:
    """A table of headers. What can't be read ends it; its length says where the rest goes on."""
    source = _Source(value)
    end, found = source.table(0, len(value), DEPTH)
    found.size = end
    found.count = VALUES - source.left
    found.is_cut = source.is_cut
    return end, found


@dataclass(slots=True)
class _Source:
    """The bytes of a table, and how many more of its values may be read.

    The methods take where a value begins, where its container ends, and how many levels may lie in
    it. They return where the value ends, and the value.
    """

    data: bytes
    left: int = VALUES
    is_cut: bool = False

    def table(self, at: int, end: int, depth: int) -> tuple[int, FieldTable]:
        at, end = self._bounds(at, end)
        return end, FieldTable(self._values(at, end, depth, named=True))

    def _list(self, at: int, end: int, depth: int) -> tuple[int, list[Any]]:
        at, end = self._bounds(at, end)
        return end, [value for _, value in self._values(at, end, depth, named=False)]

    def _text(self, at: int, end: int) -> tuple[int, str | bytes]:
        end, value = self._bytes(at, end)
        try:
            return end, value.decode()
        except UnicodeDecodeError:
            return end, value

    def _bytes(self, at: int, end: int) -> tuple[int, bytes]:
        at, end = self._bounds(at, end)
        return end, self.data[at:end]

    def _bounds(self, at: int, end: int) -> tuple[int, int]:
        """Where a value with its length in front begins and ends: never beyond its container."""
        begin = at + 4
        last = begin + int.from_bytes(self.data[at:begin])
        return begin, last if last < end else end

    def _values(self, at: int, end: int, depth: int, *, named: bool) -> Iterator[tuple[str, Any]]:
        """The values of a table, with their names, or of a list."""
        name = ""
        while depth and at < end:
            if not self.left:
                self.is_cut = True
                return
            self.left -= 1
            if named:
                begin, at = at + 1, at + 1 + self.data[at]
                if at >= end:
                    return
                name = as_text(self.data[begin:at])
            try:
                at, value = self._value(at, end, depth - 1)
            except (LookupError, ValueError):  # of no kind that is known, or cut off
                return
            yield name, value

    def _value(self, at: int, end: int, depth: int) -> tuple[int, Any]:
        """A value of any kind, behind its letter."""
        kind = self.data[at : at + 1]
        at += 1
        if kind == b"S":
            return self._text(at, end)
        if kind == b"x":
            return self._bytes(at, end)
        if kind == b"F":
            return self.table(at, end, depth)
        if kind == b"A":
            return self._list(at, end, depth)
        read = timestamp if kind == b"T" else pamqp.decode.TABLE_MAPPING[kind]
        size, value = read(self.data[at : at + _FIXED])
        if at + size > end:
            raise ValueError
        return at + size, value
