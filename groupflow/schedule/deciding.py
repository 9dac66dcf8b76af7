"""Decides about due ticks: which to make, which were missed, what is due next.

Pure: it depends only on the definition, the due time and the current time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice, takewhile

from groupflow.core.timing import last_tick, next_tick
from groupflow.schedule.definitions import Definition

ON_TIME = 60_000_000
"""Microseconds after its time until a tick counts as missed: daemons may restart meanwhile."""
MOST_MADE = 100  # ticks a script
MOST_COUNTED = 100_000  # ticks of one absence that are counted at most


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about a schedule that is due; all times are microseconds since 1970."""

    make: list[int]  # the ticks that become tasks, the oldest first
    until: int  # the last tick that this decides
    next_at: int  # when it is due next; not later than now if more is to be made up
    missed: int  # ticks that weren't made when they were due, even if they are made now


def decide(definition: Definition, due: int, now: int) -> Decision:
    """What to do about a schedule that was due and is not decided yet."""
    if definition.missed == "all":
        return _each(definition, due, now)
    timing = definition.timing
    passed = [due, *islice(takewhile(lambda t: t <= now, timing.ticks(due)), MOST_COUNTED)]
    newest = passed[-1]
    if len(passed) > MOST_COUNTED:
        newest = last_tick(timing, newest, now) or newest
    is_on_time = now - newest <= ON_TIME
    made = [newest] if is_on_time or definition.missed == "once" else []
    return Decision(made, newest, next_tick(timing, newest), len(passed) - is_on_time)


def _each(definition: Definition, due: int, now: int) -> Decision:
    """Make all due ticks that aren't too old, some at a time."""
    timing = definition.timing
    begin = now - max(definition.catch_up, ON_TIME)
    gone = 0
    until = due
    if due < begin:
        gone = len([*islice(takewhile(lambda t: t < begin, timing.ticks(due)), MOST_COUNTED)]) + 1
        due = next_tick(timing, begin - 1)
    every = takewhile(lambda tick: tick <= now, chain([due], timing.ticks(due)))
    made = [*islice(every, MOST_MADE)]
    if not made:
        return Decision([], until, due, gone)
    late = sum(now - tick > ON_TIME for tick in made)
    return Decision(made, made[-1], next_tick(timing, made[-1]), gone + late)


def first_due(definition: Definition, now: int, due: int = 0, decided: int = 0) -> int:
    """When a schedule is due that begins, or whose timing has changed.

    Args:
        definition: the new one.
        now: the current time.
        due: when it was due by the old timing; 0 if there was none.
        decided: the last tick that was decided by the old timing.
    """
    if 0 < due <= now:
        # Make up once for ticks that fell due while daemons restarted with the new timing.
        missed = last_tick(definition.timing, max(decided, due - ON_TIME), now)
        if missed is not None and (definition.missed != "skip" or now - missed <= ON_TIME):
            return missed
    return next_tick(definition.timing, max(now, decided))
