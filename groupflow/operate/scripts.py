"""The scripts that operators run, and their replies; see `groupflow.store.scripts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupflow.schedule.table import MAKING, ROWS
from groupflow.store.clock import seconds
from groupflow.store.scripts import DEBOUNCING, LAYOUT, LEADING, PRELUDE, ROLES, SESSIONS, AnyVerb

_INDEXES = (*PRELUDE, "operate/indexes")
_NAMING = ("operate/naming",)
_LETTERS = (*PRELUDE, *_NAMING, "operate/letters")
_BURIAL = (*PRELUDE, "operate/burial")
_DERIVED = ("store/ids", "operate/derived")
_MOVING = (*PRELUDE, *_DERIVED, DEBOUNCING, "operate/moving")
_WALKING = (*SESSIONS, "operate/indexes", "operate/walking")
_LEAVING = (DEBOUNCING, "operate/leaving")
_CANCELLING = (*_WALKING, *_NAMING, *_LEAVING, LAYOUT)


class OperatorVerb(AnyVerb):
    """Those of operators."""

    STATUS = "status", (*_INDEXES, *_NAMING)
    WHY = "why", (*_WALKING, *_NAMING)
    POOLS = "pools", (*_INDEXES, *_NAMING)
    POOL_WORKERS = "pool_workers", (*SESSIONS, *_NAMING)
    BUSY = "busy", (*_WALKING, *_NAMING)
    DAEMON = "daemon", (*_WALKING, *_NAMING)
    FIND = "find", (*_WALKING, *_NAMING)
    LIST = "list", (*_WALKING, *_NAMING)
    GROUPS = "groups", (*_WALKING, *_NAMING)
    LANE = "lane", (*PRELUDE, *_NAMING)
    LATELY = "lately"
    TENANTS = "tenants", (*_WALKING, *_NAMING)
    TENANT_FIGURES = "tenant_figures", (*PRELUDE, *_NAMING)
    CONFIGURATION = "configuration"
    TYPES = "types", (*PRELUDE, *_NAMING)
    SAMPLE = "sample", _INDEXES
    FIND_LONGEST = "find_longest", _WALKING
    STATISTICS = "statistics"
    PAUSE = "pause", (*PRELUDE, LAYOUT)
    RESUME = "resume"
    LIMIT = "limit", (*SESSIONS, LAYOUT, "store/by_hand")
    LIMITS_BY_HAND = "limits_by_hand"
    CANCEL = "cancel", (*PRELUDE, LAYOUT)
    CANCEL_EACH = "cancel_each", _CANCELLING
    CANCEL_LINES = "cancel_lines", _CANCELLING
    COUNT_GROUP = "count_group", (*_WALKING, *_LEAVING)
    DROP_WAITING = "drop_waiting", (*_BURIAL, *_LEAVING)
    RUN_NOW = "run_now", (*PRELUDE, DEBOUNCING, LAYOUT)
    DELAYED_OF = "delayed_of"
    DEAD = "dead", _LETTERS
    LETTER = "letter", _LETTERS
    ENVELOPE = "envelope", (*PRELUDE, *_NAMING)
    BODIES = "bodies", (*PRELUDE, ROLES)
    ARCHIVE = "archive"
    STAY = "stay"
    REDRIVE = "redrive", (*_BURIAL, *_DERIVED, "store/delaying", LAYOUT)
    DROP = "drop", _BURIAL
    SWEEP = "sweep", _BURIAL
    NOTE_ACTION = "note_action"
    ACTIONS = "actions"
    SCHEDULES = "schedules", (*ROWS, *_NAMING)
    SCHEDULE_RUN = "schedule_run", MAKING
    SCHEDULE_HOLD = "schedule_hold", ROWS
    SCHEDULE_DROP = "schedule_drop", ROWS
    NUMBER = "number"
    MOVING_TO = "moving_to", (*PRELUDE, LEADING)
    MOVE_TURNS = "move_turns", _MOVING
    MOVE_OUT = "move_out", _MOVING
    MOVE_IN = (
        "move_in",
        (*_MOVING, LAYOUT, LEADING, "store/sessions", "store/by_hand", "schedule/rows"),
    )
    MOVE_DONE = "move_done", (*_MOVING, "operate/burial", "schedule/rows")
    MOVE_NOTES = "move_notes", (*PRELUDE, LEADING)
    MOVE_END = "move_end"


def named(flat: Sequence[Any], *times: str) -> dict[str, Any]:
    """A reply of names and values in a flat list, or a row of one, as a dict.

    A name without a value is not in it. The values of `times` are microseconds; they become
    seconds.
    """
    facts: dict[str, Any] = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        facts[name.decode()] = value.decode() if isinstance(value, bytes) else value
    return facts | {name: seconds(facts[name]) for name in times if name in facts}
