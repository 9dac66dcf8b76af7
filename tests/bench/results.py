"""A run as a file: written, read again, compared.

The schema is that of `Row`, under ``rows``; beside it ``quick``, ``at`` (UTC), ``seconds``,
``machine`` (name → version or fact), ``record_us`` (what recording a task costs) and ``problems``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.bench.rows import MUCH_STOLEN, Goal, Row

FELL = 0.8  # below so much of what it was, a figure has fallen


@dataclass(slots=True)
class Results:
    """What one run of the suite found."""

    quick: bool
    at: str
    machine: dict[str, str]
    record_us: float
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        rounded = _rounded({**asdict(self), "rows": [_facts(row) for row in self.rows]})
        path.write_bytes(orjson.dumps(rounded, option=options))

    def merged_into(self, older: Results) -> Results:
        """These rows in the place of older ones: where only some rows were run.

        One that the host disturbed doesn't replace one that it disturbed less.
        """
        ours = {row.key: row for row in self.rows}
        kept = []
        for row in older.rows:
            again = ours.pop(row.key, row)
            kept.append(row if again.stolen > max(MUCH_STOLEN, row.stolen) else again)
        return Results(
            self.quick, self.at, self.machine, self.record_us, older.seconds,
            [*kept, *ours.values()], self.problems,
        )  # fmt: skip

    def fallen_below(self, older: Results) -> list[str]:
        """What fell by more than a fifth, in words, as a ratio to what was measured beside it."""
        before = {row.key: row.guard for row in older.rows}
        return [
            f"{row.title}: {row.guard / before[row.key] - 1:+.0%} against what is beside it"
            for row in self.rows
            if before.get(row.key) and row.guard < FELL * before[row.key]
        ]


def read(path: Path) -> Results | None:
    """The results in a file; ``None`` where there is none."""
    if not path.exists():
        return None
    facts = orjson.loads(path.read_bytes())
    rows = []
    for row in facts.pop("rows"):
        row.pop("is_met")
        goal = row.pop("goal")
        rows.append(Row(**row, goal=Goal(**goal) if goal else None))
    return Results(**facts, rows=rows)


def _facts(row: Row) -> dict[str, Any]:
    return {**asdict(row), "is_met": row.is_met}


def _rounded(value: Any) -> Any:
    """Four digits say all that such a figure can."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value
