"""The scripts of schedules; see `groupflow.store.scripts`."""

from __future__ import annotations

from groupflow.store.scripts import LAYOUT, PRELUDE, TAKING, AnyVerb

ROWS = (*PRELUDE, "schedule/rows")
MAKING = (*TAKING, "schedule/rows", "schedule/making")


class ScheduleVerb(AnyVerb):
    """The scripts by which daemons make ticks."""

    PRESENT = "present", ROWS
    DEFINE = "define", (*ROWS, LAYOUT)
    RETIRE = "retire", (*ROWS, LAYOUT)
    TICK = "tick", MAKING
