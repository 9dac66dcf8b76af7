"""Whether the simulation sees: each damage, and the first seed that shows it.

``python -m tests.simulation.damages [NAME…]`` runs seeds with each damage, until one breaks a
promise. A damage that none shows is a blind spot, unless it says why it is unseen.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.simulation import clock

if __name__ == "__main__":
    clock.install()  # before anything takes the machine's clock by name

import orjson

from tests.simulation.command import real_server
from tests.simulation.damages_of_intake import OF_INTAKE
from tests.simulation.damages_of_lines import OF_LINES
from tests.simulation.damages_of_product import OF_PRODUCT
from tests.simulation.damages_of_records import OF_RECORDS
from tests.simulation.damages_of_sessions import OF_SESSIONS
from tests.simulation.damaging import Damage, DamagedRedis, Effect, Hits, damaged
from tests.simulation.plan import plan
from tests.simulation.redis_side import RealRedis
from tests.simulation.run import run

DAMAGES: dict[str, Damage] = {
    each.name: each for each in (*OF_LINES, *OF_RECORDS, *OF_SESSIONS, *OF_INTAKE, *OF_PRODUCT)
}
TOGETHER = 60  # runs that one process sees to
FOUND = 0.95  # of all damages, at least


@dataclass(frozen=True, slots=True)
class Search:
    """What came of a damage.

    Attributes:
        name: its name.
        seed: the first that shows it; 0 where none did.
        seeds: how many were run.
        hits: how often it had its effect.
        violation: what that seed broke.
    """

    name: str
    seed: int
    seeds: int
    hits: int
    violation: str = ""


def search(damage: Damage, path: str, seeds: Iterable[int]) -> Search:
    """Run seeds with a damage until one breaks a promise.

    Args:
        damage: what is broken.
        path: of a real server's socket.
        seeds: in their order.

    Raises:
        MatchesNothing: none of the scripts has what it is about.
    """
    real, hits, number = DamagedRedis(path, damage), Hits(), 0
    sound = RealRedis(path)
    for seed in seeds:
        number += 1
        with damaged(damage, hits):
            outcome = run(plan(seed), real)
        hits.hit(real.take_hits())
        if outcome.violations and not run(plan(seed), sound).violations:
            return Search(damage.name, seed, number, hits.number, str(outcome.violations[0]))
    return Search(damage.name, 0, number, hits.number)


def main() -> int:
    """Look for each damage that is named, or for all; 1 where too many are not seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.damages")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.names) - set(DAMAGES):
        parser.error(f"there is no damage {', '.join(sorted(unknown))}")
    names = given.names or list(DAMAGES)
    if given.child:
        return _search_here(names, range(given.first, given.first + given.seeds))
    found = _search_in_children(names, given.seeds, given.jobs)
    return _sum_up(found, given.seeds)


def _search_here(names: list[str], seeds: range) -> int:
    """Search in this process; a line of JSON a damage."""
    with real_server() as path:
        for name in names:
            print(orjson.dumps(asdict(search(DAMAGES[name], path, seeds))).decode(), flush=True)
    return 0


def _search_in_children(names: list[str], seeds: int, jobs: int) -> dict[str, Search]:
    """The same on all cores, some seeds of some damages at a time."""
    waiting = [(name, 1) for name in names]
    running: dict[subprocess.Popen[bytes], tuple[list[str], int, Path]] = {}
    found: dict[str, Search] = {}
    with tempfile.TemporaryDirectory(prefix="simulation-") as folder:
        number = 0
        while waiting or running:
            while waiting and len(running) < jobs:
                first = waiting[0][1]
                several = 6 if first == 1 else 1
                chosen = [name for name, at in waiting[:several] if at == first]
                del waiting[: len(chosen)]
                most = min(30 if first == 1 else TOGETHER, seeds - first + 1)
                number += 1
                output = Path(folder, str(number))
                command = [sys.executable, "-W", "ignore", "-m", "tests.simulation.damages"]
                part = ["--child", f"--from={first}", f"--seeds={most}", *chosen]
                with output.open("wb") as file:
                    child = subprocess.Popen([*command, *part], stdout=file)
                running[child] = chosen, first + most, output
            for child in [child for child in running if child.poll() is not None]:
                chosen, following, output = running.pop(child)
                if child.returncode:
                    raise SystemExit(f"{', '.join(chosen)}: the search failed")
                # Ids have any characters, those that end lines for Python too.
                for line in filter(None, output.read_text().split("\n")):
                    came = Search(**orjson.loads(line))
                    earlier = found.get(came.name, Search(came.name, 0, 0, 0))
                    found[came.name] = whole = Search(
                        came.name,
                        came.seed,
                        earlier.seeds + came.seeds,
                        earlier.hits + came.hits,
                        came.violation,
                    )
                    if came.seed or following > seeds:
                        print(_told(whole), flush=True)
                    else:
                        waiting.append((came.name, following))
            time.sleep(0.05)
    return found


def _told(found: Search) -> str:
    damage = DAMAGES[found.name]
    if found.seed:
        return (
            f"{found.name}: {damage.says}: seed {found.seed}, after {found.seeds}: "
            f"{found.violation[:160]}"
        )
    why = f"unseen: {damage.unseen}" if damage.unseen else "NOT FOUND"
    if isinstance(damage, Effect) and not found.hits:
        why = f"it never happened; {why}"  # scripts may have come to do it in another way
    return f"{found.name}: {damage.says}: {why} ({found.hits} hits in {found.seeds} seeds)"


def _sum_up(found: dict[str, Search], seeds: int) -> int:
    seen = [each for each in found.values() if each.seed]
    sought = [each for each in found.values() if each.seed or not DAMAGES[each.name].unseen]
    needed = sorted(each.seeds for each in seen)
    quick = sum(number <= 30 for number in needed)
    print(
        f"found {len(seen)} of {len(sought)} damages within {seeds} seeds each, {quick} of them "
        f"within 30; {len(found) - len(sought)} can't be seen"
    )
    blind = sorted(each.name for each in sought if not each.seed)
    if blind:
        print(f"not found: {', '.join(blind)}")
    return int(len(seen) < FOUND * len(sought))


if __name__ == "__main__":
    sys.exit(main())
