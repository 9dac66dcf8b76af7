"""Bodies that a task had before operators corrected it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from groupflow.store.clock import seconds
from groupflow.store.keys import SEQUENCE_DIGITS


@dataclass(frozen=True, slots=True)
class Correction:
    """A body that a task had before."""

    at: float  # when an operator replaced it, Unix seconds by Redis's clock
    by: str  # who that was; empty if unknown
    bytes: int  # how long it was
    sha256: str  # of the whole, in hexadecimal
    body: str | None  # its beginning where that is UTF-8; None where it is withheld, too
    body_base64: str | None  # where it isn't
    is_cut: bool  # whether the beginning isn't all


def read_corrections(lines: str) -> list[Correction]:
    """What `redrive.lua` wrote, the oldest first."""
    found = []
    for line in filter(None, lines.split("\n")):  # a body has other ends of lines, too
        facts: dict[str, Any] = orjson.loads(line[SEQUENCE_DIGITS:])
        found.append(Correction(at=seconds(line[:SEQUENCE_DIGITS]), **facts))
    return found
