"""Schedules: ticks come by themselves until operators pause them; which must be there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import count, takewhile
from typing import Any

from groupflow.operate.namespace import Namespace
from groupflow.operate.schedules import NoSchedule, Schedules
from tests.history.invariants import Violation
from tests.history.stored import Stored
from tests.simulation import clock
from tests.simulation.acts import Timer
from tests.simulation.clock import pass_virtual
from tests.simulation.fleet import Fleet
from tests.simulation.operators import BY, Operators

QUIET = 2.0  # seconds behind the last fault's recovery for which ticks go on
WAY = 0.2  # seconds that a tick's call may be on its way, at most, while a pause overtakes it
GRAIN = 0.5  # seconds within which a task that has ended is known to


class Timers:
    """Those of one run."""

    def __init__(self, fleet: Fleet, operators: Operators) -> None:
        self._fleet = fleet
        self._operators = operators
        self._paused_at: dict[str, float] = {}  # Unix seconds, when an operator began to
        self.violations: list[Violation] = []

    @property
    def is_over(self) -> bool:
        """Whether no tick comes any more."""
        return len(self._paused_at) == len(self._fleet.plan.timers) or bool(self.violations)

    async def tidy(self) -> None:
        """Let ticks go on for a while, and no longer."""
        recovered = max((until for _, until in self._fleet.troubled), default=0.0)
        if self._fleet.plan.timers:
            await pass_virtual(max(0.0, recovered + QUIET - clock.now()))
        for timer in self._fleet.plan.timers:
            began = clock.wall()
            try:
                while await self._operators.ask(partial(self._pause, timer.name)) is None:
                    pass
            except NoSchedule:
                self.violations.append(Violation("T3", f"{timer.name} never began"))
            self._paused_at[timer.name] = began - WAY

    async def _pause(self, name: str, namespace: Namespace) -> bool:
        return await Schedules(namespace).pause(name, BY)

    def check(self) -> Iterator[Violation]:
        """What is not as it must be, once a run is over."""
        made: dict[str, list[float]] = {timer.name: [] for timer in self._fleet.plan.timers}
        for id_ in Stored(self._fleet.raw, self._fleet.partitions).states:
            if id_.startswith("schedule:"):
                _, name, text = id_.split(":", 2)
                made[name].append(datetime.fromisoformat(text).timestamp())
        for timer in self._fleet.plan.timers:
            yield from self._check(timer, sorted(made[timer.name]))

    def _check(self, timer: Timer, made: list[float]) -> Iterator[Violation]:
        name, row = timer.name, self._row(timer.name)
        ticks, missed, skipped = (int(row.get(key, 0)) for key in (b"ticks", b"missed", b"skipped"))
        if ticks != len(made):
            yield Violation("T1", f"{name} says that it made {ticks} ticks, of which are {made}")
        if len(set(made)) != len(made):
            yield Violation("T1", f"{name} made a tick in two partitions: {made}")
        if not made:
            yield Violation("T3", f"{name} made no tick")
            return
        until = self._paused_at[name]
        due = takewhile(lambda at: at < until, (made[0] + timer.every * n for n in count()))
        missing = sorted({*due} - {*made})
        if timer.missed == "all" and missed:
            yield Violation("T3", f"{name} makes up all, and says that it missed {missed}")
        if len(missing) > missed + skipped:
            yield Violation("T3", f"{name} missed {missing}, and says {missed} and {skipped}")
        for at in missing:
            if self._was_quiet(at, at + timer.every) and not self._was_open(timer, made, at):
                yield Violation("T3", f"{name} missed {at} while nothing was wrong")

    def _row(self, name: str) -> dict[bytes, bytes]:
        raw: Any = self._fleet.raw
        rows = [raw.hgetall(keys("schedule", name)) for keys in self._fleet.partitions]
        return next((row for row in rows if row and b"gone" not in row), {})

    def _was_quiet(self, since: float, until: float) -> bool:
        """Whether nothing was wrong from one time (Unix seconds) to another."""
        offset = clock.BEGIN - clock.EPOCH
        return not any(
            began < until + offset and since + offset < ended
            for began, ended in self._fleet.troubled
        )

    def _was_open(self, timer: Timer, made: list[float], at: float) -> bool:
        """Whether the tick before one was not over by then, where that is a reason."""
        if timer.overlap == "queue":
            return False
        before = max(tick for tick in made if tick < at)
        ends = [
            event.wall
            for event in self._fleet.events
            if event.kind == "end"
            and event.id.startswith(f"schedule:{timer.name}:")
            and datetime.fromisoformat(event.id.split(":", 2)[2]).timestamp() == before
        ]
        return not ends or max(ends) > at - GRAIN
