"""How far an attempt has got, as its handler says: checked, packed, and in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor
from numbers import Integral, Real
from typing import Any

import orjson

MOST = 2**53  # of a figure: above it JavaScript's numbers, and others', aren't exact
UNIT_CHARS = 32


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt has got."""

    done: float
    total: float | None  # None where its handler doesn't know
    unit: str  # of both, such as rows; may be empty
    at: float  # Unix seconds by Redis's clock: when its handler said so
    age: float  # seconds since then, by the same clock

    @property
    def percent(self) -> int | None:
        """Done of the total: 100 only once all is done; over 100 where that was more than thought.

        ``None`` where the total isn't known.
        """
        return None if self.total is None else floor(100 * self.done / self.total)

    def without_words(self) -> Progress:
        """The same without the handler's own text."""
        return replace(self, unit="")

    def figures(self) -> str:
        """What its handler said: ``400 of 1,000 rows``."""
        figures = [_shown(each) for each in (self.done, self.total) if each is not None]
        return f"{' of '.join(figures)} {self.unit}".rstrip()

    def words(self) -> str:
        """All of it: ``400 of 1,000 rows, 40 % (3 s ago)``."""
        share = "" if self.percent is None else f", {self.percent} %"
        return f"{self.figures()}{share} ({self.age:,.0f} s ago)"


def pack_progress(done: Any, total: Any = None, unit: Any = "") -> bytes:
    """Figures that a handler says, as JSON: ``[400,1000,"rows"]``.

    Raises:
        ValueError: one of them can't be used.
    """
    figures = [_figure("done", done), None if total is None else _figure("total", total)]
    if total is not None and total < 1 / MOST:  # of less, a share may be beyond a float
        raise ValueError(f"total is more than 0, or None where it isn't known, not {total!r}")
    if not isinstance(unit, str) or len(unit) > UNIT_CHARS or not unit.isprintable():
        said = f"{unit!r:.{2 * UNIT_CHARS}}"
        raise ValueError(f"unit has up to {UNIT_CHARS} printable characters, unlike {said}")
    return orjson.dumps([*figures, unit])


def unpack_progress(packed: str | bytes, at: float, age: float) -> Progress:
    """What was packed, said at a time (Unix seconds), so many seconds ago."""
    done, total, unit = orjson.loads(packed)
    return Progress(done, total, unit, at, age)


def _figure(name: str, value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MOST:  # which NaN isn't either
        raise ValueError(f"{name} is a number from 0 to 2^53, not {value!r:.64}")
    return int(value) if isinstance(value, Integral) else float(value)


def _shown(figure: float) -> str:
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:,.2f}".rstrip("0").rstrip(".")
