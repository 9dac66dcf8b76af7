"""The table, on a terminal and in `docs/performance.md`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.results import Results
from tests.bench.rows import Row

BEGIN, END = "<!-- table: written by make bench -->", "<!-- end of the table -->"
_HEAD = ("row", "groupflow", "beside it", "share", "goal", "met", "order and overlap")


def print_table(results: Results) -> None:
    """Print all rows."""
    table = Table(*_HEAD)
    for row in results.rows:
        table.add_row(*_cells(row))
    Console(width=180).print(table)


def write_into(document: Path, results: Results) -> None:
    """Put the table and what it was measured on between the markers of a document."""
    text = document.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n{END}{behind}")


def markdown(results: Results) -> str:
    """The table as Markdown, with machine and versions."""
    lines = ["![groupflow beside its peers](benchmarks/chart.svg)", ""]
    lines += [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in results.rows]
    facts = " · ".join(f"{name} {value}" for name, value in results.machine.items())
    kind = "`QUICK=1`, " if results.quick else ""
    lines += ["", f"Measured {kind}{results.at} on: {facts}.", ""]
    lines += [f"Recording a task costs {results.record_us:.2f} µs, in every peer.", ""]
    lines += [f"- {problem.splitlines()[0]}" for problem in results.problems]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    peers = ", ".join(f"{name} {figure(value)}" for name, value in row.peers.items())
    verdicts = "; ".join(f"{who}: {what}" for who, what in row.verdicts.items())
    verdicts = verdicts or ("kept" if row.is_checked else "")
    met = {True: "yes", False: "**no**", None: ""}[row.is_met]
    share = f"{row.share:.2f}" if row.beside else ""
    goal = row.goal.words if row.goal else "reported"
    return (
        row.title,
        f"{figure(row.ours)} {row.unit}",
        peers,
        share,
        goal,
        met,
        verdicts or "kept",
    )


def figure(value: float) -> str:
    """A number with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
