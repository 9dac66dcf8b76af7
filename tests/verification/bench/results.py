"""A run as a file and as a table: `docs/benchmarks/results.json`, `docs/performance.md`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from tests.verification.bench.rows import Row

BEGIN, END = "<!-- table: written by make bench -->", "<!-- end of the table -->"
_HEAD = ("row", "groupflow", "beside it", "ratio", "goal")


@dataclass(slots=True)
class Results:
    """What was measured in one run.

    Attributes:
        commit: of the code.
        quick: whether with smaller numbers.
        at: when, UTC.
        machine: name → version or fact.
        record_us: what recording a task costs.
        rows: the figures.
        problems: what could not be measured, or broke its promise.
    """

    commit: str
    quick: bool
    at: str
    machine: dict[str, str]
    record_us: float
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Those in a file."""
        return TypeAdapter(cls).validate_json(path.read_bytes())

    def write(self, path: Path) -> None:
        """Write them as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(self, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    def write_into(self, document: Path) -> None:
        """Put the table and what it was measured on between the markers of a document."""
        before, _, rest = document.read_text().partition(BEGIN)
        behind = rest.partition(END)[2]
        document.write_text(f"{before}{BEGIN}\n\n{self.markdown()}\n{END}{behind}")

    def markdown(self) -> str:
        """The table, what only reports, and of which commit, machine and versions all is."""
        lines = [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
        compared = [row for row in self.rows if row.peers or row.is_met is not None]
        lines += [f"| {' | '.join(row.cells)} |" for row in compared]
        alone = [row.cells for row in self.rows if row not in compared]
        lines += ["", *(f"- {title}: {figure}" for title, figure, *_ in alone)]
        facts = " · ".join(f"{name} {value}" for name, value in self.machine.items())
        kind = "`QUICK=1`, " if self.quick else ""
        lines += [
            "",
            f"Measured {kind}{self.at}, all of commit `{self.commit[:12]}`, on: {facts}.",
            f"Recording a task costs {self.record_us:.2f} µs, in every peer.",
            "",
        ]
        for row in self.rows:
            if disturbed := sum(each.is_disturbed for each in row.rounds):
                lines.append(f"- {row.title}: {disturbed} of {len(row.rounds)} rounds disturbed")
            lines += [f"- {row.title}: {who} had {what}" for who, what in row.verdicts.items()]
        lines += [f"- {problem.splitlines()[0]}" for problem in self.problems]
        return "\n".join(lines).rstrip() + "\n"
