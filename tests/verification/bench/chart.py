"""The chart: the rows that are compared, as bars; an SVG that follows light and dark."""

from __future__ import annotations

from html import escape

from tests.verification.bench.results import Results
from tests.verification.bench.rows import OURS, Row
from tests.verification.bench.tables import figure

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
