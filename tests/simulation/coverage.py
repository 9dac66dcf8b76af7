"""What runs have tried: where processes died, and with what going on, over many seeds.

``python -m tests.simulation.coverage --seeds 300`` prints how many deaths each place had, by what
the run had and what went on just then, and names what was never tried.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping

from tests.simulation import clock

if __name__ == "__main__":
    clock.install()  # before anything takes the machine's clock by name

import orjson

from tests.simulation.command import real_redis
from tests.simulation.places import ANSWERED, CRITICAL, HANDLES, HANDS_ON
from tests.simulation.plan import plan
from tests.simulation.run import run
from tests.simulation.watch import RULES, Death

ROUND = ("partitions", "replicas", "oldest", "fair", "tenants", "anew")
"""What the namespace is like; and whether its server leads since less than a lease."""
ACTORS = ("with operators", "with pullers", "with strangers", "with tenants")
"""Who takes part."""
TASKS = ("staged", "retried", "suspect")
"""What runs in the process."""
COLUMNS = (*RULES, *ROUND, *TASKS, *ACTORS)
CELLS = [
    *(
        (row, column)
        for row in CRITICAL
        for column in (*RULES, *ROUND, *ACTORS)
        # Where tenants take turns, no group is handed on.
        if not (row.startswith(HANDS_ON) and column == "tenants")
    ),
    *((HANDLES, column) for column in TASKS),
]
"""Those that matter."""
SECONDS = 9.0  # virtual, as `make sim` has it

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


def main() -> int:
    """Run seeds and print the table; 1 where a cell that matters has none."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.coverage")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    if given.child:
        print(orjson.dumps([[*cell, n] for cell, n in _covered(seeds).items()]).decode())
        return 0
    table = _covered_by_children(seeds, given.jobs)
    print(rendered(table))
    missing = empty_cells(table)
    for row, column in missing:
        print(f"never: {row}, {column}")
    print(f"{len(missing)} of {len(CELLS)} cells that matter have no death")
    return int(bool(missing))


def _covered(seeds: range) -> Table:
    table: Table = Counter()
    with real_redis() as real:
        for seed in seeds:
            table += count(run(plan(seed, seconds=SECONDS), real).deaths)
    return table


def _covered_by_children(seeds: range, jobs: int) -> Table:
    size, table = 50, Counter[tuple[str, str]]()
    parts = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    while parts:
        children = []
        for part in parts[:jobs]:
            command = [sys.executable, "-W", "ignore", "-m", "tests.simulation.coverage", "--child"]
            command += [f"--from={part.start}", f"--seeds={len(part)}"]
            children.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        del parts[:jobs]
        for child in children:
            output, _ = child.communicate()
            if child.returncode:
                raise SystemExit("seeds could not be run")
            table.update({(row, column): n for row, column, n in orjson.loads(output)})
    return table


if __name__ == "__main__":
    sys.exit(main())
