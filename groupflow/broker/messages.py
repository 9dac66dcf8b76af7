"""What an application publishes, checked before it goes out."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import uuid4

import orjson
import pamqp.encode

from groupflow.broker import frames
from groupflow.broker.publisher import Outgoing
from groupflow.core.errors import Unroutable
from groupflow.core.headers import HEADER_DEPTH, MAX_HEADERS, are_deep, headers_over
from groupflow.core.routing import MAX_SECONDS, MAX_TEXT_BYTES, parse_body
from groupflow.core.template import has_controls

_NAME_BYTES = 128  # of a header's name: longer ones are cut on their way

Body: TypeAlias = bytes | str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish. Published again as the same object, it is the same task.

    Attributes:
        body: a JSON object: its bytes as they are to arrive, its text, or a mapping to be written
            as JSON.
        type: the task type; ``None`` where the body names it.
        id: the task's id, at most 255 bytes; fresh where none is given.
        headers: AMQP headers.
        priority: seconds by which the task counts as older than it is; ``None``: as configured.
        delay: seconds before which it may not run; ``None``: as configured.
    """

    body: Body
    type: str | None = None
    id: str = field(default_factory=lambda: uuid4().hex)
    headers: Mapping[str, Any] = field(default_factory=dict)
    priority: float | None = None
    delay: float | None = None

    def checked(self, max_headers: int = MAX_HEADERS) -> Outgoing:
        """The message as it goes out.

        Args:
            max_headers: bytes of headers that a task may have (`rabbitmq.max_headers`).

        Raises:
            Unroutable: it would be a dead letter from the start; the reason says why.
        """
        _check_name("id", self.id)
        if self.type is not None:
            _check_name("type", self.type)
        headers = dict(self.headers)
        if self.priority is not None:
            headers["x-priority"] = _number("priority", self.priority, -MAX_SECONDS)
        if self.delay is not None:
            headers["x-delay"] = round(float(_number("delay", self.delay, 0.0)) * 1000)
        _check_headers(headers, max_headers)
        return Outgoing(_packed(self.body), self.type, self.id, headers)


def _packed(body: Body) -> bytes:
    try:
        if isinstance(body, str):
            body = body.encode()
        packed = body if isinstance(body, bytes) else orjson.dumps(dict(body))
    except (TypeError, ValueError) as error:
        raise Unroutable(f"the body can't be written as JSON: {error}") from None
    parse_body(packed)
    return packed


def _check_name(what: str, text: str) -> None:
    if not text or len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        raise Unroutable(f"the {what} has to have 1 to {MAX_TEXT_BYTES} bytes")
    if has_controls(text):
        raise Unroutable(f"the {what} has control characters")


def _check_headers(headers: dict[str, Any], most: int) -> None:
    """Check that AMQP can carry the headers, and that intake, which reads them so, takes them."""
    if are_deep(headers):
        raise Unroutable(
            f"the headers are nested over {HEADER_DEPTH} deep: what lies deeper would be lost"
        )
    try:
        packed = pamqp.encode.field_table(headers)
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
        raise Unroutable(f"AMQP can't carry the headers: {error}") from None
    _, seen = frames.table(packed)
    if over := headers_over(seen.size, seen.count, is_cut=seen.is_cut, most=most):
        raise Unroutable(over)
    if seen.keys() != headers.keys():
        raise Unroutable(f"AMQP can't carry a header's name of over {_NAME_BYTES} bytes")


def _number(what: str, value: float, least: float) -> int | str:
    """A number of seconds as a header that keeps it whole: AMQP's floats have 7 digits."""
    if not least <= value <= MAX_SECONDS:
        raise Unroutable(f"the {what} is {value}: from {least:g} to {MAX_SECONDS:g} seconds")
    return int(value) if float(value).is_integer() else repr(float(value))
