"""How an existing queue differs from its declaration, read from RabbitMQ's refusal."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pamqp.common import FieldValue

_DIFFERS = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' .*?: "
    r"received (?P<received>.+?) but current is (?P<current>.+?)\s*$",
    re.DOTALL,
)
_VALUE = re.compile(r"(?:the value )?'(?P<text>[^']*)'(?: of type '(?P<type>[^']*)')?")
_NUMBERS = {"byte", "short", "signedint", "unsignedint", "long", "unsignedbyte", "unsignedshort"}


@dataclass(frozen=True, slots=True)
class Difference:
    """An argument of a queue that differs from our declaration."""

    argument: str  # `durable`, `x-queue-type` and the like
    current: FieldValue  # what the queue has; None where it has nothing


def parse_difference(text: str) -> Difference | None:
    """The difference in the words of a refused declaration; ``None`` where they tell none."""
    found = _DIFFERS.search(text)
    if found is None:
        return None
    value = _VALUE.match(found["current"])
    if value is None:  # "none", which for the type is the oldest one
        classic = found["argument"] == "x-queue-type"
        return Difference(found["argument"], "classic" if classic else None)
    current, kind = value["text"], value["type"]
    if current in ("true", "false"):
        return Difference(found["argument"], current == "true")
    if kind in _NUMBERS and current.lstrip("-").isdecimal():
        return Difference(found["argument"], int(current))
    return Difference(found["argument"], current)
