"""What runs have tried: where processes died, and with what going on, over many seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.simulation.places import ANSWERED, CRITICAL, HANDLES
from tests.simulation.watch import RULES, Death

ROUND = ("partitions", "replicas", "oldest", "fair", "tenants", "anew")
"""What the namespace is like; and whether its server leads since less than a lease."""
ACTORS = ("with operators", "with pullers", "with strangers", "with tenants")
"""Who takes part."""
TASKS = ("staged", "retried", "quarantined")
"""What runs in the process."""
COLUMNS = (*RULES, *ROUND, *TASKS, *ACTORS)
CELLS = [
    *((row, column) for row in CRITICAL for column in (*RULES, *ROUND, *ACTORS)),
    *((HANDLES, column) for column in TASKS),
]
"""Those that matter."""

Table = Counter[tuple[str, str]]


def count(deaths: Iterable[Death]) -> Table:
    """How many deaths each cell has."""
    return Counter(
        (place if place in CRITICAL else place.removesuffix(ANSWERED), feature)
        for death in deaths
        for place in death.places
        for feature in death.features
    )


def empty_cells(table: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """The cells that matter and have none."""
    return [cell for cell in CELLS if not table.get(cell)]


def rendered(table: Mapping[tuple[str, str], int]) -> str:
    """As text: places that matter first, then all others, by how many deaths they had."""
    totals: Counter[str] = Counter()
    for (row, column), number in table.items():
        if column in ("oldest", "fair", "tenants"):  # a run has one of these
            totals[row] += number
    others = [row for row, _ in totals.most_common() if row not in CRITICAL]
    width = max(map(len, (*CRITICAL, *others)))
    lines = [
        " ".join(
            [
                " " * width,
                *(f"{column.removeprefix('with ')[:6]:>6}" for column in ("all", *COLUMNS)),
            ]
        )
    ]
    for row in (*CRITICAL, *others):
        cells = [totals[row], *(table.get((row, column), 0) for column in COLUMNS)]
        lines.append(" ".join([f"{row:{width}}", *(f"{cell or '-':>6}" for cell in cells)]))
    return "\n".join(lines)
