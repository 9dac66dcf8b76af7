"""Whether the simulation sees: each damage, and the first seed that shows it.

``python -m tests.simulation.damages [NAME…]`` runs seeds with each damage, until one breaks a
promise. A damage that none shows is a blind spot, unless it says why it is unseen.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace

from tests.simulation import clock

if __name__ == "__main__":
    clock.install()  # before anything takes the machine's clock by name

import orjson

from tests.simulation.children import in_children
from tests.simulation.command import real_server
from tests.simulation.damages_of_product import OF_PRODUCT
from tests.simulation.damages_of_scripts import OF_SCRIPTS
from tests.simulation.damaging import Damage, DamagedRedis, Effect
from tests.simulation.plan import plan
from tests.simulation.redis_side import RealRedis
from tests.simulation.run import run

DAMAGES: dict[str, Damage] = {each.name: each for each in (*OF_SCRIPTS, *OF_PRODUCT)}
SEVERAL = 6  # damages that one process looks for, at first
FIRST, TOGETHER = 30, 60  # runs that one process sees to, at first and later
FOUND = 0.95  # of all damages, at least


@dataclass(frozen=True, slots=True)
class Search:
    """What came of a damage.

    Attributes:
        name: its name.
        seed: the first that shows it; 0 where none did.
        seeds: how many were run.
        hits: how often a script's call had its effect.
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
    real, hits, number = DamagedRedis(path, damage), 0, 0
    sound = RealRedis(path)
    for seed in seeds:
        number += 1
        with damage.in_product() or nullcontext():
            outcome = run(plan(seed), real)
        hits += real.take_hits()
        if outcome.violations and not run(plan(seed), sound).violations:
            return Search(damage.name, seed, number, hits, str(outcome.violations[0]))
    return Search(damage.name, 0, number, hits)


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
    found: dict[str, Search] = {}
    # First a few seeds of several damages at a time, then more of each that was not seen.
    some = [names[at : at + SEVERAL] for at in range(0, len(names), SEVERAL)]
    waiting = deque((each, range(1, 1 + min(FIRST, seeds))) for each in some)

    def share(part: tuple[list[str], range]) -> list[str]:
        chosen, numbers = part
        return [f"--from={numbers.start}", f"--seeds={len(numbers)}", *chosen]

    searches = in_children("tests.simulation.damages", waiting, share, jobs)
    for (chosen, numbers), (code, lines) in searches:
        if code:
            raise SystemExit(f"{', '.join(chosen)}: the search failed")
        for came in (Search(**orjson.loads(line)) for line in lines):
            earlier = found.get(came.name, Search(came.name, 0, 0, 0))
            found[came.name] = whole = replace(
                came, seeds=earlier.seeds + came.seeds, hits=earlier.hits + came.hits
            )
            if came.seed or numbers.stop > seeds:
                print(_told(whole), flush=True)
            else:
                more = range(numbers.stop, min(numbers.stop + TOGETHER, seeds + 1))
                waiting.append(([came.name], more))
    return found


def _told(found: Search) -> str:
    damage = DAMAGES[found.name]
    if found.seed:
        seeds = f"seed {found.seed}, after {found.seeds}"
        return f"{damage.told}: {seeds}: {found.violation[:160]}"
    why = f"unseen: {damage.unseen}" if damage.unseen else "NOT FOUND"
    if isinstance(damage, Effect) and not found.hits:
        why = f"it never happened; {why}"  # scripts may have come to do it in another way
    hits = f"{found.hits} hits in " if isinstance(damage, Effect) else ""
    return f"{damage.told}: {why} ({hits}{found.seeds} seeds)"


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
