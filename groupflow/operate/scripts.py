"""The scripts that operators run; see `groupflow.store.scripts`."""

from __future__ import annotations

from groupflow.schedule.table import MAKING, ROWS
from groupflow.store.scripts import (
    DEBOUNCING,
    FACTS,
    LAYOUT,
    LEADING,
    PRELUDE,
    SESSIONS,
    AnyVerb,
)

_INDEXES = (*PRELUDE, "operate/indexes")
_NAMING = ("operate/naming",)
_LETTERS = (*PRELUDE, *_NAMING, "operate/letters")
_BURIAL = (*FACTS, "operate/burial")
_MOVING = (*FACTS, "store/ids", DEBOUNCING, "operate/moving")
_WALKING = (*SESSIONS, "operate/indexes", "operate/walking")


class OperatorVerb(AnyVerb):
    """Those of operators."""

    STATUS = "status", (*_INDEXES, *_NAMING)
    WHY = "why", (*_WALKING, *_NAMING)
    POOLS = "pools", (*PRELUDE, *_NAMING)
    POOL_WORKERS = "pool_workers", (*SESSIONS, *_NAMING)
    BUSY = "busy", (*_WALKING, *_NAMING)
    TOPS = "tops", (*_WALKING, *_NAMING)
    FIND = "find", (*_WALKING, "store/facts", *_NAMING)
    LIST = "list", (*_WALKING, "store/facts", *_NAMING)
    GROUPS = "groups", (*_WALKING, "store/facts", *_NAMING)
    LANE = "lane", (*FACTS, *_NAMING)
    TENANTS = "tenants", (*PRELUDE, *_NAMING)
    TENANT_FIGURES = "tenant_figures", (*PRELUDE, *_NAMING)
    SHARDS = "shards", (*_WALKING, *_NAMING)
    CONFIGURATION = "configuration"
    SAMPLE = "sample", _INDEXES
    SURVEY = "survey", _WALKING
    SAMPLES = "samples", (*PRELUDE, *_NAMING)
    TALLY = "tally"
    TALLIES = "tallies", (*PRELUDE, *_NAMING)
    PAUSE = "pause", (*PRELUDE, LAYOUT)
    RESUME = "resume"
    LIMIT = "limit", (*SESSIONS, LAYOUT, "store/by_hand")
    LIMITS_BY_HAND = "limits_by_hand"
    DROP_WAITING = "drop_waiting", (*_BURIAL, DEBOUNCING)
    RUN_NOW = "run_now", (*PRELUDE, DEBOUNCING, LAYOUT)
    DELAYED_OF = "delayed_of"
    DEAD = "dead", _LETTERS
    LETTER = "letter", _LETTERS
    ENVELOPE = "envelope", (*PRELUDE, *_NAMING)
    BODIES = "bodies"
    ARCHIVE = "archive"
    STAY = "stay"
    REDRIVE = "redrive", (*_BURIAL, "store/delaying", LAYOUT)
    DROP = "drop", _BURIAL
    SWEEP = "sweep", _BURIAL
    SCHEDULES = "schedules", (*ROWS, *_NAMING)
    SCHEDULE_RUN = "schedule_run", MAKING
    SCHEDULE_HOLD = "schedule_hold", ROWS
    SCHEDULE_DROP = "schedule_drop", ROWS
    NUMBER = "number"
    MOVING_TO = "moving_to"
    MOVE_TURNS = "move_turns", _MOVING
    MOVE_OUT = "move_out", _MOVING
    MOVE_IN = "move_in", (*_MOVING, LEADING)
    MOVE_DONE = "move_done", (*_MOVING, "operate/burial")
    MOVE_HISTORY = "move_history", _MOVING
    MOVE_NOTES = "move_notes"
    MOVE_SCHEDULES = "move_schedules", ROWS
    MOVE_LIMITS = "move_limits", (*SESSIONS, "store/by_hand")
    MOVE_COUNTERS = "move_counters"
    MOVE_END = "move_end"
