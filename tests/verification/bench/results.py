"""A run as a file: written, read again, added to, compared.

The schema is that of `Row`, under ``rows``; each also has what follows from its rounds: ``ours``
and ``ratio`` (median, low, high), ``peers`` (medians), ``details`` (medians) and ``is_met``. Beside
it ``commit``, ``is_dirty``, ``quick``, ``at`` (UTC), ``seconds``, ``machine`` (name → version or
fact), ``record_us`` (what recording a task costs), ``families`` (those measured whole) and
``problems``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.verification.bench.rows import Goal, Round, Row
from tests.verification.bench.source import Source

FELL = 0.8  # below so much of what it was, a figure has fallen
_FOLLOWS = ("ours", "ratio", "peers", "details", "is_met")  # from a row's rounds


class Mixed(Exception):
    """Rows that don't belong into one table; the message says why."""


@dataclass(slots=True)
class Results:
    """What was measured of one commit, in one run or several."""

    source: Source
    quick: bool
    at: str
    machine: dict[str, str]
    record_us: float
    seconds: float = 0.0
    families: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        facts = asdict(self)
        facts = {**facts.pop("source"), **facts, "rows": [_facts(row) for row in self.rows]}
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
            if row.key in rows:
                row.rounds = [*rows[row.key].rounds, *row.rounds]
                row.once = {**row.once, **rows[row.key].once}
                row.verdicts = {**rows[row.key].verdicts, **row.verdicts}
            rows[row.key] = row
        return Results(
            self.source, self.quick, f"{older.at} to {self.at}", self.machine, self.record_us,
            older.seconds + self.seconds, list(dict.fromkeys([*older.families, *self.families])),
            list(rows.values()), [*older.problems, *self.problems],
        )  # fmt: skip

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
        before = {row.key: row for row in older.rows}
        found = []
        for row in self.rows:
            then, now = before[row.key].judged if row.key in before else None, row.judged
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
    return Results(source, **facts | {"rows": [_row(each) for each in facts["rows"]]})


def _row(facts: dict[str, Any]) -> Row:
    known = {name: value for name, value in facts.items() if name not in _FOLLOWS}
    goal = known.pop("goal")
    rounds = [Round(**each) for each in known.pop("rounds")]
    return Row(**known, goal=Goal(**goal) if goal else None, rounds=rounds)


def _facts(row: Row) -> dict[str, Any]:
    ratio = row.ratio
    follows = {
        "ours": asdict(row.ours),
        "ratio": asdict(ratio) if ratio else None,
        "peers": row.peers,
        "details": row.details,
        "is_met": row.is_met,
    }
    return {**asdict(row), **follows}


def _rounded(value: Any) -> Any:
    """Four digits say all that such a figure can."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value
