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
