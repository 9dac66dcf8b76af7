"""A list to make a pool equal to: JSON Lines, kept in a file until all of it is checked.

The pool changes only after the last line has come: so a list that breaks off, or has a wrong line,
or an id twice, changes nothing. Each line is parsed here with all the code that reads it later.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from groupflow.core.errors import Unroutable
from groupflow.core.headers import json_headers
from groupflow.core.json_text import Unkeepable, has_over, read_exactly, write_exactly
from groupflow.core.routing import MAX_SECONDS, Router, parse_body
from groupflow.core.template import has_controls
from groupflow.store.envelope import Envelope
from groupflow.store.pulling import Listed

MOST_ID = 1024  # characters
MOST_LINES = 5_000_000  # empty ones too
IN_MEMORY = 1024 * 1024  # bytes of a list that are kept without a file
SLICE_BYTES = 1024 * 1024  # of tasks that a script gets; a larger line goes alone
_NAMES = frozenset({"id", "priority", "body", "type"})
_SHOWN = 80  # characters of what is wrong
_VALUES_BESIDE = 8  # at most, of a line beside its body's
_SHARES = 256  # of the ids, each searched for duplicates on its own


class WrongList(Exception):
    """A list that can't be used; its text says where, and why."""


class UnfitList(WrongList):
    """A well-formed list that is too long, or has a line that can't become a task."""


class SpooledList:
    """A list as it comes in, line by line. Its methods take time: call them from a thread."""

    def __init__(self, types: tuple[str, ...], most_body: int, most_values: int) -> None:
        """An empty one.

        Args:
            types: of the pool; lines that name none get the first.
            most_body: bytes of a body.
            most_values: JSON values of a body.
        """
        self._types = types
        self._most_body = most_body
        self._most_values = most_values
        # It has no name, and becomes a file only beyond `IN_MEMORY` bytes.
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, prefix="groupflow-list-")  # noqa: SIM115  closed by close
        self._rest = b""
        # Digests, in shares by their last byte: a million take 8 MB.
        self._ids = [array("Q") for _ in range(_SHARES)]
        self.lines = 0

    def close(self) -> None:
        """Delete it."""
        self._file.close()

    def feed(self, piece: bytes) -> None:
        """Take some of it.

        Raises:
            WrongList: a line is wrong.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > 2 * self._most_body + 4 * MOST_ID:
            raise WrongList(f"line {self.lines + 1} is too long")
        for line in lines:
            self._check(line)

    def end(self) -> None:
        """Check the rest, once all of it has come.

        Raises:
            WrongList: its last line is wrong, or an id is in it twice.
        """
        self._check(self._rest)
        self._rest = b""
        for share in self._ids:  # a share at a time, since sorting lets no other thread run
            before = None
            for digest in sorted(share):
                if digest == before:
                    self._find_twice(digest)
                before = digest

    def read(self, number: int) -> Iterator[list[Line]]:
        """The lines, up to `number` and `SLICE_BYTES` at a time; a larger line comes alone."""
        self._file.seek(0)
        some: list[Line] = []
        size = 0
        for packed in self._file:
            size += len(packed)
            if some and (len(some) == number or size > SLICE_BYTES):
                yield some
                some, size = [], len(packed)
            some.append(Line(*orjson.loads(packed)))
        if some:
            yield some

    def _check(self, line: bytes) -> None:
        self.lines += 1
        if self.lines > MOST_LINES:
            raise UnfitList(f"it has over {MOST_LINES} lines")
        if not line.strip():
            return
        facts = self._facts(line)
        digest = _digest(facts[0])
        self._ids[digest % _SHARES].append(digest)
        self._file.write(orjson.dumps(facts) + b"\n")

    def _facts(self, line: bytes) -> tuple[str, float, str, str]:
        """A line as it is kept: id, priority, type, and the body as JSON."""
        if has_over(line, self._most_values + _VALUES_BESIDE):
            most = f"rabbitmq.max_values = {self._most_values}"
            raise self._unfit(f"has a body with more JSON values than {most}")
        try:
            value: Any = read_exactly(line)
        except Unkeepable as error:
            raise self._unfit(f"can't be kept: {error}") from None
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise self._wrong("is not a JSON object")
        if unknown := sorted(value.keys() - _NAMES):
            raise self._wrong(f"has an unknown name: {unknown[0][:_SHOWN]!a}")
        id_, priority = value.get("id"), value.get("priority", 0)
        if not isinstance(id_, str) or not 1 <= len(id_) <= MOST_ID or has_controls(id_):
            raise self._wrong(f"has no id of 1 to {MOST_ID} characters")
        is_number = isinstance(priority, int | float) and not isinstance(priority, bool)
        if not is_number or not abs(priority) <= MAX_SECONDS:
            raise self._wrong("has a priority that is no number of seconds within a year")
        type_, body = value.get("type", self._types[0]), value.get("body", {})
        if type_ not in self._types:
            raise self._wrong(f"has the type {str(type_)[:_SHOWN]!a}, which isn't of this pool")
        if not isinstance(body, dict):
            raise self._wrong("has a body that is no JSON object")
        try:
            packed = write_exactly(body)
            parse_body(packed, self._most_values)
        except Unroutable as error:
            raise self._unfit(f"has a body that can't be kept: {error.reason}") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise self._unfit(f"has a body that can't be kept: {error}") from None
        if len(packed) > self._most_body:
            raise self._wrong(f"has a body over rabbitmq.max_body = {self._most_body} bytes")
        return id_, float(priority), type_, packed.decode()

    def _wrong(self, what: str) -> WrongList:
        return WrongList(f"line {self.lines} {what}")

    def _unfit(self, what: str) -> UnfitList:
        return UnfitList(f"line {self.lines} {what}")

    def _find_twice(self, digest: int) -> None:
        """Raise with the id that comes twice, unless two ids have one digest."""
        seen: set[str] = set()
        for some in self.read(1000):
            for line in some:
                if _digest(line.id) == digest:
                    if line.id in seen:
                        raise WrongList(f"the id {line.id[:_SHOWN]!a} is in the list twice")
                    seen.add(line.id)


@dataclass(slots=True)
class Line:
    """A line of a list, checked."""

    id: str
    priority: float  # seconds
    type: str
    body: str  # JSON

    def listed(self, pool: str, router: Router) -> Listed:
        """Its task."""
        body = self.body.encode()
        tenant, scope = router.owner_of(parse_body(body))
        headers = json_headers({})
        envelope = Envelope(self.type, None, tenant, None, headers, body, scope, pool)
        return Listed(self.id, self.priority, envelope.pack(), envelope.pack_facts(), scope)


def _digest(id_: str) -> int:
    return int.from_bytes(blake2b(id_.encode("utf-8", "replace"), digest_size=8).digest(), "big")
