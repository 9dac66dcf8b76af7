"""The table, on a terminal and in `docs/performance.md`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.verification.bench.results import Results
from tests.verification.bench.rows import Row, Span

BEGIN, END = "<!-- table: written by make bench -->", "<!-- end of the table -->"
_HEAD = (
    *("row", "groupflow", "beside it", "ratio", "rounds"),
    *("goal", "met", "order and overlap", "not as by default"),
)


def print_table(results: Results) -> None:
    """Print all rows."""
    table = Table(*_HEAD)
    for row in results.rows:
        table.add_row(*_cells(row))
    Console(width=220).print(table)


def write_into(document: Path, results: Results) -> None:
    """Put the table and what it was measured on between the markers of a document.

    Raises:
        Mixed: the rows are not of one commit.
    """
    results.refuse_unless_whole_cloth()
    text = document.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n{END}{behind}")


def markdown(results: Results) -> str:
    """The table as Markdown, with commit, machine and versions."""
    lines = ["![groupflow beside its peers](benchmarks/chart.svg)", ""]
    lines += [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in results.rows]
    facts = " · ".join(f"{name} {value}" for name, value in results.machine.items())
    kind = "`QUICK=1`, " if results.quick else ""
    lines += [
        "",
        f"Measured {kind}{results.at}, all of commit `{results.source.commit[:12]}`, on: {facts}.",
        "",
    ]
    lines += [f"Recording a task costs {results.record_us:.2f} µs, in every peer.", ""]
    lines += [f"- {problem.splitlines()[0]}" for problem in results.problems]
    return "\n".join(lines) + "\n"


def line(row: Row) -> str:
    """A row as it is told while the others are measured."""
    title, ours, _, ratio, rounds, _, met, *_ = _cells(row)
    return f"{title}: {ours}, ratio {ratio or '-'}, rounds {rounds} {met}"


def _cells(row: Row) -> tuple[str, ...]:
    peers = [f"{name} {figure(value)}" for name, value in row.peers.items()]
    peers += [f"{name} {figure(value)} (once)" for name, value in row.once.items()]
    verdicts = "; ".join(f"{who}: {what}" for who, what in row.verdicts.items())
    rounds = str(len(row.rounds)) + (f", {row.disturbed} disturbed" if row.disturbed else "")
    return (
        row.title,
        f"{_span(row.ours)} {row.unit}",
        ", ".join(peers),
        _span(row.ratio, digits=2) if row.ratio else "",
        rounds,
        row.goal.words if row.goal else "reported",
        {True: "yes", False: "**no**", None: ""}[row.is_met],
        verdicts or ("kept" if row.is_checked else ""),
        row.off,
    )


def _span(span: Span, digits: int | None = None) -> str:
    """A median, and its lowest and highest where there are several rounds."""
    said = [
        figure(each) if digits is None else f"{each:.{digits}f}"
        for each in (span.median, span.low, span.high)
    ]
    return said[0] if span.low == span.high else f"{said[0]} ({said[1]} to {said[2]})"


def figure(value: float) -> str:
    """A number with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
