"""The scripts by which operators look and act; see `groupflow.store.scripts`."""

from __future__ import annotations

from groupflow.store.scripts import BURIAL, FACTS, PRELUDE, SESSIONS, AnyVerb

_INDEXES = "operate/indexes"
_WALKING = (*SESSIONS, "operate/walking", _INDEXES)


class OperatorVerb(AnyVerb):
    """Those of operators."""

    STATUS = "status", (*PRELUDE, _INDEXES)
    WHY = "why", SESSIONS
    TOP = "top", (*SESSIONS, _INDEXES)
    TOPS = "tops", _WALKING
    FIND = "find", (*FACTS, "store/sessions")
    LIST = "list", (*SESSIONS, _INDEXES)
    GROUPS = "groups", (*FACTS, *_WALKING[1:])
    LANE = "lane", FACTS
    TOLD = "told"
    SAMPLE = "sample", (*PRELUDE, _INDEXES)
    SURVEY = "survey", _WALKING
    SAMPLES = "samples"
    PAUSE = "pause"
    RESUME = "resume"
    DROP_WAITING = "drop_waiting", BURIAL
    RUN_NOW = "run_now"
    DELAYED_OF = "delayed_of"
