"""The Lua scripts as they are sent: key names, the order constant and the shared rules go in front.

One file a verb under `lua/`, whose header is its contract. What several verbs share stands in files
of its own, and `_BEHIND` says which verb gets which: there is nothing to resolve.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Literal

from groupflow.store.keys import Keys


class Verb(StrEnum):
    """Every script, by the name of its file."""

    REGISTER = "register"
    RENEW = "renew"
    LEAVE = "leave"
    TELL = "tell"
    TOLD = "told"
    REAP = "reap"
    ENQUEUE = "enqueue"
    CLAIM_PLAIN = "claim_plain"
    CLAIM_GROUPED = "claim_grouped"
    COMPLETE = "complete"
    RELEASE = "release"
    RETRY = "retry"
    ADVANCE = "advance"
    BURY = "bury"
    PROMOTE = "promote"
    DEAD = "dead"
    LETTER = "letter"
    ENVELOPE = "envelope"
    BODIES = "bodies"
    ARCHIVE = "archive"
    REDRIVE = "redrive"
    DROP = "drop"
    SWEEP = "sweep"
    DROP_WAITING = "drop_waiting"
    RUN_NOW = "run_now"
    DELAYED_OF = "delayed_of"
    PAUSE = "pause"
    RESUME = "resume"
    STATUS = "status"
    WHY = "why"
    TOP = "top"
    FIND = "find"
    LIST = "list"
    ROLL = "roll"
    SWEEP_RENAMED = "sweep_renamed"
    SAMPLE = "sample"
    SURVEY = "survey"
    SAMPLES = "samples"
    TOPS = "tops"
    GROUPS = "groups"
    LANE = "lane"


_SESSIONS = ("prelude", "sessions")
_SETTLING = (*_SESSIONS, "settling")
_BURIAL = ("prelude", "facts", "burial")
_LETTERS = ("prelude", "facts", "letters")
_IDS = ("prelude", "facts", "ids")
_BEHIND: dict[Verb, tuple[str, ...]] = {
    Verb.ENQUEUE: (*_IDS, "delaying"),
    Verb.SWEEP_RENAMED: _IDS,
    Verb.REGISTER: _SESSIONS,
    Verb.RENEW: _SESSIONS,
    Verb.LEAVE: _SESSIONS,
    Verb.TELL: _SESSIONS,
    Verb.REAP: _SESSIONS,
    Verb.CLAIM_PLAIN: (*_SESSIONS, "claiming"),
    Verb.CLAIM_GROUPED: (*_SESSIONS, "claiming"),
    Verb.COMPLETE: _SETTLING,
    Verb.RELEASE: _SETTLING,
    Verb.RETRY: _SETTLING,
    Verb.ADVANCE: _SETTLING,
    Verb.BURY: _SETTLING,
    Verb.REDRIVE: (*_BURIAL, "delaying"),
    Verb.DROP: _BURIAL,
    Verb.SWEEP: _BURIAL,
    Verb.DROP_WAITING: _BURIAL,
    Verb.FIND: (*_SESSIONS, "facts"),
    Verb.WHY: _SESSIONS,
    Verb.TOP: (*_SESSIONS, "indexes"),
    Verb.LIST: (*_SESSIONS, "indexes"),
    Verb.STATUS: ("prelude", "indexes"),
    Verb.SAMPLE: ("prelude", "indexes"),
    Verb.DEAD: _LETTERS,
    Verb.LETTER: _LETTERS,
    Verb.LANE: ("prelude", "facts"),
    Verb.SURVEY: (*_SESSIONS, "walking", "indexes"),
    Verb.TOPS: (*_SESSIONS, "walking", "indexes"),
    Verb.GROUPS: (*_SESSIONS, "facts", "walking", "indexes"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis gets it: its text, and the SHA-1 under which Redis keeps it."""

    text: str
    sha: str


def read_lua(name: str) -> str:
    """The text of one file under `lua/`."""
    return resources.files("groupflow.store").joinpath("lua", f"{name}.lua").read_text("utf-8")


def render(verb: Verb, keys: Keys, order: Literal["oldest", "fair"], text: str) -> Script:
    """Puts the key table, the constants and the shared rules in front of a verb's own text."""
    shebang = ""
    if text.startswith("#!"):  # Redis wants its flags on the very first line
        shebang, text = text.split("\n", 1)
    front = "\n".join(read_lua(name) for name in _BEHIND.get(verb, ("prelude",)))
    whole = f"{shebang}\n{keys.as_lua()}\nlocal ORDER = '{order}'\n{front}\n{text}".lstrip("\n")
    return Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())


def load_scripts(keys: Keys, order: Literal["oldest", "fair"]) -> dict[Verb, Script]:
    """All scripts for one namespace and one order."""
    return {verb: render(verb, keys, order, read_lua(verb)) for verb in Verb}
