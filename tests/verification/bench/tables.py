"""The table, on a terminal and in `docs/performance.md`, and its chart, an SVG."""

from __future__ import annotations

from html import escape
from pathlib import Path

from tests.verification.bench.results import Results
from tests.verification.bench.rows import OURS, Row, Span

BEGIN, END = "<!-- table: written by make bench -->", "<!-- end of the table -->"
_HEAD = (
    *("row", "groupflow", "beside it", "ratio", "rounds"),
    *("goal", "met", "order and overlap", "not as by default"),
)

WIDTH, LEFT, RIGHT = 860, 150, 110
BAR, GAP, HEAD = 18, 6, 34  # pixels

_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600 }
  .value { font-variant-numeric: tabular-nums }
  .ours { fill: #0969da } .peer { fill: #afb8c1 } .limit { fill: #d4a72c }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .ours { fill: #58a6ff } .peer { fill: #6e7681 } .limit { fill: #bb8009 }
  }
"""
_LIMITS = ("bare aio-pika", "the ideal", "alone", "one daemon")


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


def svg(results: Results) -> str:
    """The chart of all rows whose figure is a rate with something beside it."""
    rows = [row for row in results.rows if row.peers and row.more_is_better]
    parts: list[str] = []
    y = 8
    for row in rows:
        y = _draw(parts, row, y)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" '
        f'aria-label="groupflow beside its peers">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )


def _draw(parts: list[str], row: Row, y: int) -> int:
    """Draw a row; where the next one begins."""
    parts.append(f'<text class="title" x="0" y="{y + 18}">{escape(row.title)}</text>')
    y += HEAD - GAP
    bars = {OURS: row.ours.median, **row.peers, **row.once}
    longest = max(bars.values()) or 1.0
    for name, value in bars.items():
        kind = "ours" if name == OURS else "limit" if name in _LIMITS else "peer"
        width = max(1.0, value / longest * (WIDTH - LEFT - RIGHT))
        middle = y + BAR - 5
        parts += [
            f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3"/>',
            f'<text class="value" x="{LEFT + width + 6:.1f}" y="{middle}">'
            f"{figure(value)} {escape(row.unit)}</text>",
        ]
        y += BAR + GAP
    return y + 12
