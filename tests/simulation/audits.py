"""Looks at what Redis holds, between calls: each script is atomic, so all is sound at any time."""

from __future__ import annotations

import re

from tests.history.auditor import audit_of
from tests.history.invariants import Violation
from tests.history.snapshot import read
from tests.simulation import clock
from tests.simulation.fleet import Fleet
from tests.simulation.jobs import MOST_OF_TENANT


class Unsound(Exception):
    """What lies in Redis contradicts itself."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__(str(violations[0]))
        self.violations = violations


class Audits:
    """Looks between calls, a number of them after the last look."""

    def __init__(self, fleet: Fleet) -> None:
        """Begins with the first call of a run."""
        self._fleet = fleet
        self._gaps = iter(fleet.plan.audits)
        self._left = next(self._gaps, 0)
        self.done = 0
        fleet.redis.before_call = self._count

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = next(self._gaps, 0)
            self._look()

    def _was_raised(self, found: Violation) -> bool:
        """Whether it is of tasks that began while somebody let more of theirs run at once."""
        if of_tenant := re.match(r"of tenant .{8}(.+) run (\d+) more", found.text):
            raised_to = self._fleet.watch.raised_tenants.get(of_tenant[1], 0)
            return raised_to - MOST_OF_TENANT >= int(of_tenant[2])
        raised = (group for group, most in self._fleet.watch.raised.items() if most > 1)
        return any(found.text.startswith(f"of {group} run ") for group in raised)

    def _is_early(self, found: Violation) -> bool:
        """Whether it is of a group that a move found ready: a claim asks for its limits again."""
        since, _ = self._fleet.layouts[-1]
        is_moved = len(self._fleet.layouts) > 1 and clock.now() < since + 1
        return is_moved and found.invariant == "L8" and " is ready, " in found.text

    def _is_tie(self, found: Violation) -> bool:
        """Whether it is of tasks that came at one moment, to partitions which a move has joined."""
        if len(self._fleet.layouts) == 1 or not found.text.endswith("]"):
            return False
        arrivals = [int(each) for each in re.findall(r"\d{16}", found.text)]
        return found.invariant == "S4" and arrivals == sorted(arrivals, reverse=True)

    def _look(self) -> None:
        if self._fleet.is_moving or self._fleet.loop.broken:
            return
        self.done += 1
        found = [
            Violation(each.invariant, f"{clock.now() - clock.BEGIN:.4f} s: {each.text}")
            for keys in self._fleet.partitions
            for each in audit_of(read(self._fleet.raw, keys))
            if not (self._was_raised(each) or self._is_early(each) or self._is_tie(each))
        ]
        if found:
            self._fleet.loop.broken = Unsound(found)
