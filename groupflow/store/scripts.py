"""The Lua scripts as they are sent: the constants and the shared rules go in front.

They name no partition: each call tells the script its partition, as the only key. So scripts are
the same for all partitions, and for all namespaces.

One file a verb under `lua/`, whose header is its contract. What several verbs share stands in files
of its own, and each verb names those that it needs: there is nothing to resolve. Of these rules, a
script is sent only the functions that it uses: Redis runs a script as one function, and makes each
of them again on every run. For what they refer to Lua looks through all locals of the function in
which they are made, but finds those outside of that at once: so the constants and the prelude stand
outside of the rest (docs/adr/0057).
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Literal, Self, TypeAlias

from groupflow.store.keys import spelled
from groupflow.store.layout import FORMAT

# A function of the rules: on a line of its own, or from the margin to an `end` at the margin.
_RULE = re.compile(
    r"^(?:local )?function (\w+)\((?:[^\n]* end|[^\n]*\n(?:(?!end$)[^\n]*\n)*end)$", re.MULTILINE
)
_NAMED_AHEAD = re.compile(r"^local \w+(?:, \w+)*$", re.MULTILINE)
# Comments and texts name no function. Nor does a field of something.
_UNREAD = re.compile(r"--.*|'[^'\n]*'")
_WORD = re.compile(r"(?<![.\w])\w+")

Order: TypeAlias = Literal["oldest", "fair", "tenants"]

_RULES = (
    "store/outbox",
    "store/place",
    "store/unknown",
    "store/held_bytes",
    "store/facts",
    "store/ending",
    "store/limits",
    "store/tenants",
    "store/caps",
    "store/draining",
)
PRELUDE = ("store/prelude", *_RULES)
SESSIONS = (*PRELUDE, "store/sessions", "store/hand_over")
LEADING = "store/leading"
ROLES = "store/roles"
_EPOCHS = (*SESSIONS, LEADING, "store/epochs")
DEBOUNCING = "store/debouncing"
_CLAIMING = (*SESSIONS, DEBOUNCING, "store/claiming")
_EXCHANGING = ("store/prelude", "store/outbox", "store/ordinary", *_CLAIMING[2:])
_FAILING = (*SESSIONS, DEBOUNCING, "store/failing")
_IDS = (*PRELUDE, "store/ids")
LAYOUT = "store/layout"
_POOLS = (*_IDS, LAYOUT, LEADING)
TAKING = (
    *_IDS,
    "store/delaying",
    DEBOUNCING,
    LAYOUT,
    LEADING,
    "store/keeping",
    "store/entering",
    "store/taking",
)


@dataclass(frozen=True, slots=True)
class Telling:
    """What scripts write of ended tasks, beside the history."""

    names: frozenset[str] = frozenset()  # the ends that all are told
    outbox: int = 64 << 20  # bytes that may wait to be told, before claims stop
    results: int = 64 << 20  # bytes of results that are kept


UNTOLD = Telling()


class AnyVerb(StrEnum):
    """A script, by the name of its file. Each package lists its scripts in its own class."""

    rules: tuple[str, ...]  # files that stand in front of it

    def __new__(cls, name: str, rules: tuple[str, ...] = PRELUDE) -> Self:
        verb = str.__new__(cls, name)
        verb._value_ = name
        verb.rules = rules
        return verb

    @property
    def file(self) -> str:
        """What `read_lua` takes."""
        return f"{type(self).__module__.split('.')[1]}/{self}"


class Verb(AnyVerb):
    """The scripts of a task's path."""

    AGREE = "agree"
    START = "start"
    REGISTER = "register", (*_EPOCHS, LAYOUT, "store/configuring")
    RENEW = "renew", _EPOCHS
    POLL = "poll", (*_EPOCHS, LAYOUT)
    HOLDINGS = "holdings", _CLAIMING
    PUT = "put", (*_POOLS, "store/keeping")
    PRUNE = "prune", _POOLS
    LEAVE = "leave", _EPOCHS
    RELAY = "relay", (*SESSIONS, ROLES)
    BLAME = "blame", SESSIONS
    TELL = "tell", (*SESSIONS, "store/configuring")
    PROGRESS = "progress", SESSIONS
    REAP = "reap", _EPOCHS
    ENQUEUE = "enqueue", TAKING
    FOLLOW = "follow", TAKING
    CANCEL_NAMED = "cancel_named", (*_IDS, LAYOUT)
    EXCHANGE = "exchange", _EXCHANGING
    RETRY = "retry", _FAILING
    ADVANCE = "advance", _FAILING
    BURY = "bury", _FAILING
    DEFER = "defer", _FAILING
    PROMOTE = "promote", (*SESSIONS, "store/by_hand")
    EXPIRE = "expire", (*PRELUDE, DEBOUNCING)
    ROTATE = "rotate"
    SWEEP_RENAMED = "sweep_renamed", _IDS
    EXIST = "exist", _IDS
    HASTEN = "hasten"
    BURY_ROW = "bury_row", _IDS
    SCAN_OPEN = "scan_open"
    SCAN_LOOK = "scan_look"
    SCAN_REPORT = "scan_report"
    SCAN_NEXT = "scan_next"
    SCAN_DROP = "scan_drop"
    SCAN_NAMES = "scan_names"


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis gets it: its text, and the SHA-1 under which Redis keeps it."""

    text: str
    sha: str


@cache  # the shared files are in front of nearly every verb
def read_lua(file: str) -> str:
    """The text of a file, by its package and its name: ``store/prelude``."""
    room, name = file.split("/")
    return resources.files(f"groupflow.{room}").joinpath("lua", f"{name}.lua").read_text("utf-8")


@cache
def without_unused(rules: tuple[str, ...], text: str) -> list[str]:
    """The rules without the functions that the script doesn't name, itself or through others."""
    files = [_in_pieces(each) for each in rules]
    named: dict[str, set[str]] = defaultdict(set)  # by each function, what it names
    to_see = set(_words(text))
    for name, lua in itertools.chain(*files):
        (named[name] if name else to_see).update(_words(_NAMED_AHEAD.sub("", lua)))
    used = set[str]()
    while to_see := (to_see & named.keys()) - used:
        used |= to_see
        to_see = set[str]().union(*(named[name] for name in to_see))
    return ["\n".join(lua for name, lua in pieces if not name or name in used) for pieces in files]


@cache
def _in_pieces(rules: str) -> list[tuple[str, str]]:
    """The functions of a file, each with its name, and the text between them with none."""
    pieces, end = list[tuple[str, str]](), 0
    for found in _RULE.finditer(rules):
        pieces += [("", rules[end : found.start()]), (found[1], found[0])]
        end = found.end()
    return [*pieces, ("", rules[end:])]


@cache
def _words(lua: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_UNREAD.sub("", lua)))


def _inside(lua: str) -> str:
    return f"return (function()\n{lua}\nend)()"


@cache  # each partition has a client of its own
def render(
    verb: AnyVerb,
    order: Order,
    text: str,
    *,
    in_cluster: bool = False,
    partitions: int = 0,
    telling: Telling = UNTOLD,
) -> Script:
    """Puts the constants, and the shared rules that it uses, in front of a verb's own text.

    Raises:
        KeyError: it names a key that doesn't exist.
    """
    shebang = ""
    if text.startswith("#!"):  # Redis wants its flags on the very first line
        shebang, text = text.split("\n", 1)
    prelude, *rules = without_unused(tuple(read_lua(file) for file in verb.rules), text)
    # In a cluster a wake goes to subscribers at the node that has the slot, not to all nodes.
    publish = "SPUBLISH" if in_cluster else "PUBLISH"
    outbox, results = (most // max(1, partitions) for most in (telling.outbox, telling.results))
    constants = (
        f"{shebang}\nlocal TAG, call = KEYS[1], redis.call\n"
        "local byte, sub, format = string.byte, string.sub, string.format\n"
        f"local ORDER, PUBLISH = '{order}', '{publish}'\n"
        f"local PARTITIONS, FORMAT = {partitions}, '{FORMAT}'\n"
        f"local TELLS = '{''.join(f' {name} ' for name in sorted(telling.names))}'\n"
        f"local OUTBOX_MOST, RESULTS_MOST = {outbox}, {results}\n"
    )
    inner = spelled("\n".join([*rules, text]))
    whole = constants.lstrip("\n") + _inside(spelled(prelude) + _inside(inner))
    return Script(whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())


class Scripts(dict[AnyVerb, Script]):
    """The scripts of one configuration, each rendered at its first use."""

    def __init__(
        self,
        order: Order,
        *,
        in_cluster: bool = False,
        partitions: int = 0,
        telling: Telling = UNTOLD,
    ) -> None:
        self._order: Order = order
        self._in_cluster = in_cluster
        self._partitions = partitions
        self._telling = telling

    def __missing__(self, verb: AnyVerb) -> Script:
        script = self[verb] = render(
            verb,
            self._order,
            read_lua(verb.file),
            in_cluster=self._in_cluster,
            partitions=self._partitions,
            telling=self._telling,
        )
        return script
