"""A run as a file: written, read again, added to, compared.

The schema is that of `Results` and `Row`, with the facts of `source` beside the others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from tests.verification.bench.rows import Goal, Round, Row
from tests.verification.bench.source import Source

FELL = 0.8  # below so much of what it was, a figure has fallen


class Mixed(Exception):
    """Rows that don't belong into one table; the message says why."""


@dataclass(slots=True)
class Results:
    """What was measured of one commit, in one run or several.

    Attributes:
        source: of what code it is.
        quick: whether with smaller numbers.
        at: when, UTC.
        machine: name → version or fact.
        record_us: what recording a task costs.
        families: those measured whole.
        rows: the figures.
        problems: what could not be measured, or broke its promise.
    """

    source: Source
    quick: bool
    at: str
    machine: dict[str, str]
    record_us: float
    families: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = asdict(self)
        facts = {**facts.pop("source"), **facts}
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        path.write_bytes(orjson.dumps(_rounded(facts), option=options))

    def joined_to(self, older: Results) -> Results:
        """These and older ones of the same commit: a row measured again has the rounds of both.

        Nothing is replaced, so that nobody can measure a row until it looks well.

        Raises:
            Mixed: they are of two commits, of a changed tree, or of two machines.
        """
        for each in (older, self):
            each.refuse_unless_whole_cloth()
        if (older.source, older.quick) != (self.source, self.quick):
            raise Mixed(f"of two commits: {older.source.commit} and {self.source.commit}")
        if older.machine != self.machine:
            raise Mixed("of two machines, or of other versions of what was measured")
        rows = {row.key: row for row in older.rows}
        for row in self.rows:
            if before := rows.get(row.key):
                row.rounds = [*before.rounds, *row.rounds]
                row.once = {**row.once, **before.once}
                row.verdicts = {**before.verdicts, **row.verdicts}
            rows[row.key] = row
        return replace(
            self,
            at=f"{older.at} to {self.at}",
            families=list(dict.fromkeys([*older.families, *self.families])),
            rows=list(rows.values()),
            problems=[*older.problems, *self.problems],
        )

    def refuse_unless_whole_cloth(self) -> None:
        """Let only rows of one commit pass.

        Raises:
            Mixed: some are of another one, or files differed from it.
        """
        if self.source.is_dirty:
            raise Mixed("of files that differ from their commit")
        if others := {row.commit for row in self.rows} - {self.source.commit}:
            raise Mixed(f"of {self.source.commit}, with rows of {', '.join(sorted(others))}")

    def fallen_below(self, older: Results) -> list[str]:
        """What is worse by more than a fifth, and than each of the older rounds; in words."""
        before = {row.key: row.judged for row in older.rows}
        found = []
        for row in self.rows:
            then, now = before.get(row.key), row.judged
            if not then or not now or not then.median or not now.median:
                continue
            change = now.median / then.median
            worse = now.median < then.low if row.more_is_better else now.median > then.high
            if worse and (change if row.more_is_better else 1 / change) < FELL:
                found.append(f"{row.title}: {change - 1:+.0%} against the committed table")
        return found


def read(path: Path) -> Results | None:
    """The results in a file; ``None`` where there is none."""
    if not path.exists():
        return None
    facts = orjson.loads(path.read_bytes())
    source = Source(facts.pop("commit"), facts.pop("is_dirty"))
    for row in facts["rows"]:
        row["goal"] = Goal(**row["goal"]) if row["goal"] else None
        row["rounds"] = [Round(**each) for each in row["rounds"]]
    return Results(source, **facts | {"rows": [Row(**row) for row in facts["rows"]]})


def _rounded(value: Any) -> Any:
    """Four digits say all that such a figure can."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value
