"""Whether tasks count deaths for what they are: a death of a daemon, or only a lost lease."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from tests.history.events import Event
from tests.history.invariants import Violation
from tests.simulation.processes import Process


@dataclass(slots=True)
class _Attempt:
    start: Event
    process: Process
    died: bool = False  # with its process, while it ran
    is_back: bool = False  # its process has ended it, or given its claim back
    others_died: bool = False  # since then: one of them may have had it next, and not begun


def _is_anew(one: Event, two: Event) -> bool:
    """Whether an attempt is the one before it once more, one crash later."""
    is_same = (one.id, one.attempt) == (two.id, two.attempt)
    return is_same and two.crashes > one.crashes


class Fates:
    """Knows which process became of each attempt's."""

    def __init__(self) -> None:
        self.is_lossy = False
        """Whether a server has lost writes: then what it counts is what it knows."""
        self._attempts: dict[str, list[_Attempt]] = defaultdict(list)

    def died(self, process: Process, running: list[Event]) -> None:
        """A process has died, and these attempts with it."""
        lost = {(event.id, event.fence) for event in running}
        for attempts in self._attempts.values():
            for each in attempts:
                each.died |= (each.start.id, each.start.fence) in lost and each.process is process
                each.others_died |= each.is_back

    def came_back(self, id_: str, fence: int) -> None:
        """The claim of an attempt is over, and not since a process died."""
        for each in self._attempts[id_.partition("#")[0]]:
            each.is_back |= each.start.fence == fence

    def started(self, event: Event, process: Process) -> list[Violation]:
        """An attempt begins: what its task says of those before it can't be otherwise."""
        id_ = event.id.partition("#")[0]
        attempts = self._attempts[id_]
        if attempts and event.crashes < attempts[-1].start.crashes:
            attempts.clear()  # somebody redrove it, which begins anew
        attempts.append(_Attempt(event, process))
        if self.is_lossy:
            return []
        ended = [one for one, two in pairwise(attempts) if _is_anew(one.start, two.start)]
        alive = [each.process for each in ended if each.process.is_sound and not each.others_died]
        # Who comes under a dead one's name is told by that what became of it.
        dead = [
            each.process
            for each in ended
            if each.died and each.process.name == process.name and each.process is not process
        ]
        found = []
        if event.lost_leases < len(alive):
            text = f"{id_} counts deaths of daemons that live: {alive}"
            found.append(Violation("L8", f"{text}, lost leases: {event.lost_leases}"))
        if event.lost_leases > event.crashes - len(dead):
            text = f"{id_} counts deaths as lost leases: {dead}"
            found.append(Violation("L8", f"{text}, lost leases: {event.lost_leases}"))
        return found
