"""The Lua scripts as they are sent: the constants and the shared rules go in front.

They name no partition: each call tells the script its partition, as the only key. So scripts are
the same for all partitions, and for all namespaces.

One file a verb under `lua/`, whose header is its contract. What several verbs share stands in files
of its own, and each verb names those that it needs: there is nothing to resolve.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Literal, Self, TypeAlias

from groupflow.store.keys import spelled
from groupflow.store.layout import FORMAT
from groupflow.store.rendering import Script, without_unused

Order: TypeAlias = Literal["oldest", "fair", "tenants"]

PRELUDE = ("store/prelude", "store/limits", "store/tenants")
SESSIONS = (*PRELUDE, "store/sessions")
FACTS = (*PRELUDE, "store/facts")
LEADING = "store/leading"
_EPOCHS = (*SESSIONS, LEADING, "store/epochs")
DEBOUNCING = "store/debouncing"
_CLAIMING = (*SESSIONS, DEBOUNCING, "store/claiming")
_SETTLING = (*SESSIONS, "store/settling")
_EXCHANGING = (
    *_CLAIMING,
    "store/settling",
    "store/claiming_groups",
    "store/claiming_plain",
    "store/running",
)
_FAILING = (*_SETTLING, DEBOUNCING, "store/failing")
_IDS = (*FACTS, "store/ids")
LAYOUT = "store/layout"
_POOLS = (*_IDS, LAYOUT, LEADING)
TAKING = (
    *_IDS,
    "store/delaying",
    DEBOUNCING,
    LAYOUT,
    LEADING,
    "store/keeping",
    "store/placing",
    "store/taking",
)


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
    BLAME = "blame", SESSIONS
    TELL = "tell", (*SESSIONS, "store/configuring")
    REAP = "reap", _EPOCHS
    ENQUEUE = "enqueue", TAKING
    EXCHANGE = "exchange", _EXCHANGING
    HOP = "hop", SESSIONS
    RETRY = "retry", _FAILING
    ADVANCE = "advance", _FAILING
    BURY = "bury", _FAILING
    PROMOTE = "promote", (*PRELUDE, "store/by_hand")
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


@cache  # the shared files are in front of nearly every verb
def read_lua(file: str) -> str:
    """The text of a file, by its package and its name: ``store/prelude``."""
    room, name = file.split("/")
    return resources.files(f"groupflow.{room}").joinpath("lua", f"{name}.lua").read_text("utf-8")


@cache  # each partition has a client of its own
def render(
    verb: AnyVerb, order: Order, text: str, *, in_cluster: bool = False, partitions: int = 0
) -> Script:
    """Puts the constants, and the shared rules that it uses, in front of a verb's own text.

    Raises:
        KeyError: it names a key that doesn't exist.
    """
    shebang = ""
    if text.startswith("#!"):  # Redis wants its flags on the very first line
        shebang, text = text.split("\n", 1)
    front = without_unused(tuple(read_lua(file) for file in verb.rules), text)
    # In a cluster a wake goes to subscribers at the node that has the slot, not to all nodes.
    publish = "SPUBLISH" if in_cluster else "PUBLISH"
    constants = (
        f"local ORDER, PUBLISH = '{order}', '{publish}'\n"
        f"local PARTITIONS, FORMAT = {partitions}, '{FORMAT}'"
    )
    whole = f"{shebang}\nlocal TAG = KEYS[1]\n{constants}\n{spelled(front)}\n{spelled(text)}"
    return Script.of(whole.lstrip("\n"))


class Scripts(dict[AnyVerb, Script]):
    """The scripts of one order and number of partitions, each rendered at its first use."""

    def __init__(self, order: Order, *, in_cluster: bool = False, partitions: int = 0) -> None:
        self._order: Order = order
        self._in_cluster = in_cluster
        self._partitions = partitions

    def __missing__(self, verb: AnyVerb) -> Script:
        script = self[verb] = render(
            verb,
            self._order,
            read_lua(verb.file),
            in_cluster=self._in_cluster,
            partitions=self._partitions,
        )
        return script
