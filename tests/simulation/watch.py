"""What is looked at while a run goes on: things that leave nothing behind to be judged at the end.

A process whose loop turns has no excuse for going on beside its successor: only one that stands
does. A claim is taken over only where a fault explains it, and a task counts a death for what it
is: a daemon's, or only a lost lease. (`audits` looks at the store.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.history.configuration import concurrency_of
from tests.history.events import Event
from tests.history.invariants import Violation
from tests.simulation import clock
from tests.simulation.places import HANDLES
from tests.simulation.plan import Fault, Plan
from tests.simulation.processes import Process

_OF_ALL = ("redis_restart", "redis_away", "fail_over")
_CUTS = ("cut", "cut_behind", "cut_late")
_OF_ONE = ("kill", "stop", "namesake", "block", "part", *_CUTS, "orderly_restart")
_WAKES_WITHIN = 0.1  # seconds, until a process that stood has looked at its clock
_HARMLESS = 3.0  # leases behind a fault, after which it explains nothing


@dataclass(frozen=True, slots=True)
class Death:
    """Where a process died.

    Attributes:
        places: where its tasks were.
        features: what the run had, and what went on.
    """

    places: frozenset[str]
    features: frozenset[str]


def kind_of(group: str | None) -> str:
    """Which rule a group is of, in a word; groups are named by their rules."""
    if group is None:
        return "plain"
    front = group.partition("-")[0]
    return front if front in RULES else "strict"


RULES = (
    "plain", "strict", "runs", "several", "batches", "bursts", "aside", "parks", "paced", "full",
    "newest",
)  # fmt: skip


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
        id_ = event.task
        attempts = self._attempts[id_]
        if attempts and event.crashes < attempts[-1].start.crashes:
            attempts.clear()  # an operator redrove it: it begins again
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
        wrong = []
        if event.lost_leases < len(alive):
            wrong.append(f"{id_} counts deaths of daemons that live: {alive}")
        if event.lost_leases > event.crashes - len(dead):
            wrong.append(f"{id_} counts deaths as lost leases: {dead}")
        return [Violation("L8", f"{text}, lost leases: {event.lost_leases}") for text in wrong]


class Watch:
    """Looks at one run."""

    def __init__(self, plan: Plan) -> None:
        """Nothing has happened yet."""
        self.violations: list[Violation] = []
        self.raised: dict[str, int] = {}
        """The most tasks of a group that an operator let run at once."""
        self.raised_tenants: dict[str, int] = {}
        """The same of a tenant."""
        self.raised_types: dict[str, int] = {}
        """The same of a pattern of types."""
        self.ghosts: dict[tuple[str, int], float] = {}
        """Attempts whose process stood when others went on in their place, and since when."""
        self._plan = plan
        self.deaths: list[Death] = []
        self.fates = Fates()
        self._running: dict[tuple[str, int], tuple[Event, Process]] = {}

    # What handlers do:

    def saw(self, event: Event, process: Process | None) -> None:
        """An event of a process."""
        if event.kind == "end":
            self._running.pop((event.id, event.fence), None)
            self.fates.came_back(event.id, event.fence)
        elif event.kind == "start" and process is not None:
            for other, whose in list(self._running.values()):
                if not self._excludes(event, other):
                    continue
                stood = clock.now() - whose.main.stands_since if whose.main.stands else 0.0
                if stood > self._plan.lease / 2:
                    self.ghosts.setdefault((other.id, other.fence), clock.now())
                elif self._goes_on_without_excuse(whose):
                    new, old = (f"{e.id} of {e.group} under {e.fence}" for e in (event, other))
                    text = f"{new} started in {process}, while {old} ran in {whose}, which turned"
                    self._is_broken("S4", text)
            if not process.pulls:  # one that does may be silent, and say so later
                self._running[event.id, event.fence] = event, process
                self.violations += self.fates.started(event, process)

    def _excludes(self, event: Event, other: Event) -> bool:
        """Whether one may not begin while the other runs; one that begins late is judged apart."""
        if event.fence <= other.fence:
            return False
        if event.id == other.id:
            return True
        group = event.group
        is_serial = group and concurrency_of(group) == self.raised.get(group, 1) == 1
        return bool(is_serial) and group == other.group

    @staticmethod
    def _goes_on_without_excuse(process: Process) -> bool:
        is_awake = not process.main.stands and clock.now() > process.awake_since + _WAKES_WITHIN
        return is_awake and not process.is_dead

    def died(self, process: Process, *, is_led_anew: bool) -> None:
        """A process is dead. Has the server that leads led for less than a lease?"""
        plan = self._plan
        own = [event for event, whose in self._running.values() if whose is process]
        features = {plan.order, *(f"with {feature}" for feature in plan.features)}
        facts = {
            "anew": is_led_anew,
            "partitions": plan.partitions > 1,
            "replicas": plan.replicas > 0,
            "staged": any("#" in event.id for event in own),
            "retried": any(event.attempt > 1 for event in own),
            "quarantined": any(event.crashes for event in own),
        }
        features |= {name for name, holds in facts.items() if holds}
        of_own = frozenset(features | {kind_of(event.group) for event in own})
        of_all = frozenset(features | {kind_of(job.group) for job in plan.jobs})
        self.deaths.append(Death(frozenset({HANDLES} & process.was_at), of_own))
        self.deaths.append(Death(frozenset(process.was_at - {HANDLES}), of_all))
        self.fates.died(process, own)
        for event in own:
            del self._running[event.id, event.fence]

    # What daemons log:

    def heard(self, event: Mapping[str, Any]) -> None:
        """A daemon's claim was taken over: there has to be a fault that explains it."""
        if event.get("event") == "task.resumed":
            self.fates.came_back(event["task"], event["fence"])
        if event.get("event") != "task.taken_over":
            return
        name, now = str(event["held_by"]), clock.now() - clock.BEGIN
        if not name.startswith("d") or any(self._explains(f, name, now) for f in self._plan.faults):
            return
        self._is_broken("S5", f"{event['task']} was taken from {name}, which nothing had hindered")

    def _explains(self, fault: Fault, name: str, now: float) -> bool:
        if not fault.at <= now <= fault.at + fault.seconds + 1.0 + _HARMLESS * self._plan.lease:
            return False
        if fault.kind in _OF_ALL:
            return True
        number = fault.daemon % self._plan.daemons
        return fault.kind in _OF_ONE and name.rstrip("'") == f"d{number}"

    def _is_broken(self, invariant: str, text: str) -> None:
        self.violations.append(Violation(invariant, text))
