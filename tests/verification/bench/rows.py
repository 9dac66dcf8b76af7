"""A run as a table, and each of its rows: what was measured, beside what, and the goal."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import orjson
from pydantic import TypeAdapter

OURS = "groupflow"
MUCH_STOLEN = 0.05
"""Beyond this share of processor time that the host took, a round is marked as disturbed."""
MINUTE = 60.0  # seconds within which all turns of a round have to come


@dataclass(frozen=True, slots=True)
class Span:
    """The median of some rounds, and between what they lay."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: list[float]) -> Span:
        """Of one figure at least."""
        return cls(median(figures), min(figures), max(figures))

    @property
    def said(self) -> str:
        """The median, and the lowest and the highest where there are several rounds."""
        span = "" if self.low == self.high else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.median:.2f}{span}"


def figure(value: float) -> str:
    """A number with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(slots=True)
class Round:
    """One turn of each, within a minute or so.

    Attributes:
        figures: who → figure; ours under `OURS`.
        at: when it began, UTC.
        seconds: how long it took.
        stolen: the share of processor time that a virtual machine's host took meanwhile.
    """

    figures: dict[str, float]
    at: str = ""
    seconds: float = 0.0
    stolen: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether it is about the host, or wasn't of one minute: marked, and never left out."""
        return self.stolen > MUCH_STOLEN or self.seconds > MINUTE


@dataclass(slots=True)
class Row:
    """One result.

    Attributes:
        key: `family.what`, the same in every run.
        title: as the table says it.
        unit: of all figures.
        beside: what `least` is about.
        least: the goal: how many times the figure of `beside`, round by round, ours has to be.
        most: the goal: what our own figure may be. A row without a goal only reports.
        rounds: what was measured; none is ever left out.
        verdicts: who broke order, overlapped, lost or doubled tasks, and how many.
    """

    key: str
    title: str
    unit: str
    beside: str = ""
    least: float | None = None
    most: float | None = None
    rounds: list[Round] = field(default_factory=list)
    verdicts: dict[str, str] = field(default_factory=dict)

    def of(self, who: str) -> list[float]:
        """The figures of a side, of the rounds in which it has one."""
        return [each.figures[who] for each in self.rounds if who in each.figures]

    @property
    def peers(self) -> list[str]:
        """All others that have a figure."""
        names = dict.fromkeys(who for each in self.rounds for who in each.figures)
        return [who for who in names if who != OURS]

    def ratio(self, who: str) -> Span | None:
        """Ours to a side's, of the rounds in which both have a figure; ``None`` if none has."""
        both = [one.figures for one in self.rounds if {OURS, who} <= one.figures.keys()]
        ratios = [each[OURS] / each[who] for each in both if each[who]]
        return Span.of(ratios) if ratios else None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; ``None`` where there is none."""
        if self.least is not None:
            ratio = self.ratio(self.beside)
            return ratio is not None and ratio.median >= self.least
        return None if self.most is None else median(self.of(OURS)) <= self.most

    @property
    def cells(self) -> tuple[str, ...]:
        """Title, figure, what is beside it, the ratios to that, and the goal with its verdict."""
        goal = f"≤ {self.most:g} {self.unit}" if self.most else ""
        if self.least is not None:
            goal = f"≥ {self.least:g}"
        met = {True: ": yes", False: ": **no**", None: ""}[self.is_met]
        ratios = [ratio.said for who in self.peers if (ratio := self.ratio(who))]
        return (  # the span is that of the ratio
            self.title,
            f"{figure(median(self.of(OURS)))} {self.unit}",
            ", ".join(f"{who} {figure(median(self.of(who)))}" for who in self.peers),
            "; ".join(ratios),
            goal + met,
        )


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
        lines, row = [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"], None
        costs: dict[str, list[str]] = {}  # by the title of their row: what has nothing beside it
        disturbed: dict[str, list[str]] = {}  # titles of rows, by how many of their rounds
        for each in self.rows:
            if row is None or not each.key.startswith(f"{row.key}."):
                row = each
                number = sum(one.is_disturbed for one in each.rounds)
                if number:
                    disturbed.setdefault(f"{number} of {len(each.rounds)}", []).append(each.title)
            title, ours, *rest = each.cells
            part = title.removesuffix(f", {row.title}")
            if each.peers or each.is_met is not None:
                shown = title if each is row else f"- {part}"
                lines.append(f"| {' | '.join((shown, ours, *rest))} |")
            else:
                costs.setdefault(row.title, []).append(f"{part} {ours}")
        lines += ["", *(f"- {title}: {'; '.join(each)}" for title, each in costs.items())]
        facts = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        kind = "`QUICK=1`, " if self.quick else ""
        lines += [
            "",
            f"Measured {kind}{self.at}, all of commit `{self.commit[:12]}`, on: {facts}.",
            f"Recording a task costs {self.record_us:.2f} µs, in every peer.",
            "",
        ]
        lines += [
            f"- {number} rounds disturbed: {'; '.join(of)}" for number, of in disturbed.items()
        ]
        for row in self.rows:
            lines += [f"- {row.title}: {who} had {what}" for who, what in row.verdicts.items()]
        lines += [f"- {problem.splitlines()[0]}" for problem in self.problems]
        return "\n".join(lines).rstrip() + "\n"
