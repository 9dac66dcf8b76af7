"""Why a task waits or died, in words, as its task state has it; which deaths have one cause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import orjson

from groupflow.operate.scripts import named
from groupflow.store.clock import seconds
from groupflow.store.pulling import puller_of
from groupflow.store.task_state import TaskState

_NAMED = 3  # daemons in a reason
_EXACT = 9.95  # seconds: below, their tenths are told
REASON_SHOWN = 200
"""Bytes of a reason that stay in Redis for lists, if its dead letter is archived."""

_CAUSE_SHOWN = 80  # characters of a cause, of which the end of a longer reason is no part
_CAUSE_DIGITS = 10
CAUSE = f"[0-9a-f]{{{_CAUSE_DIGITS}}}"
"""A pattern of what stands for a cause."""
# What differs between deaths of one cause: a word with a digit in it (a number, an id, a time, a
# UUID), a long word of hexadecimal digits, a quoted text; several in a row count as one.
_WORD = r"[\w.:@+-]"
_VARIES = (
    r'"[^"]*(?:"|$)|`[^`]*(?:`|$)|(?<!\w)\'[^\']*(?:\'(?!\w)|$)'
    rf"|(?<!{_WORD}){_WORD}*\d(?:{_WORD}*\w)?|\b[0-9a-fA-F]{{8,}}\b"
)
_VARYING = re.compile(rf"(?:{_VARIES})(?:[\s,]+(?:{_VARIES}))*")
HELD_BACK = (
    "nothing is given out there: Redis was started anew, or another one leads, and may have lost "
    "claims; it goes on once every daemon has renewed, or when a lease has passed"
)
OUTBOX_FULL = (
    "daemons claim nothing: events that wait to be told have reached events.max_memory; it goes on "
    "once RabbitMQ takes them"
)
_ENDS_BEFORE_WAIT = 2  # a first lost lease makes no task wait: see `hand_over.lua`


def cause_of(task_type: str, kind: str, reason: str) -> tuple[str, str]:
    """The cause that a death has in common with others of its type, and what it is named by.

    That is the first line of the reason, without what varies. It is the same of an archived letter,
    which has only the beginning of its reason.

    Returns:
        It, and ten hexadecimal digits that stand for type, kind and it.
    """
    line = reason.partition("\n")[0].encode()[:REASON_SHOWN].decode(errors="ignore").rstrip()
    cause = _VARYING.sub("…", line)[:_CAUSE_SHOWN]
    digest = blake2b("\0".join((task_type, kind, cause)).encode(), digest_size=_CAUSE_DIGITS // 2)
    return cause, digest.hexdigest()


def quiet_reason(task_state: TaskState) -> str:
    """Until when a delayed task waits for quiet; empty if it waits for something else."""
    if task_state.due is None or task_state.latest is None:
        return ""
    until, latest = hour_of(seconds(task_state.due)), hour_of(seconds(task_state.latest))
    return f"waits for quiet until {until}, at {latest} at the latest"


def unknown_reason(task_state: TaskState) -> str:
    """Which type no daemon knows, and until when a task waits for one; empty if it doesn't."""
    if task_state.due is None or task_state.unknown is None:
        return ""
    until = hour_of(seconds(task_state.due))
    return f"no daemon knows its type {task_state.unknown!r}: it waits for one until {until}"


def type_reason(limit: Mapping[str, Any], now: float) -> str:
    """How the limit of a type holds what waits for it; empty if it lets something start."""
    if "free" not in limit:
        return f"{limit['running']} of type {limit['name']} run, its limit"
    until = seconds(limit["free"])
    if until <= now:
        return ""
    return f"type {limit['name']} is over its {limit['rate']} until {hour_of(until)}"


def tenant_reason(limit: Mapping[str, Any], now: float) -> str:
    """The same of a tenant."""
    name = f"tenant {limit.get('name', '-')}"
    if "free" not in limit:
        return f"{name} runs its {limit['running']} of {limit['concurrency']}"
    until = seconds(limit["free"])
    if until <= now:
        return ""
    if limit["limited_by"] == "rate":
        return f"{name} is over its {limit['rate']} until {hour_of(until)}"
    return f"{name} is closed until {hour_of(until)}, since a handler asked for that"


def pool_reason(task_state: TaskState, pullers: int) -> str:
    """Whose workers a queued task waits for, of whom so many pull; empty if daemons run it."""
    if task_state.pool is None:
        return ""
    by = f"{pullers} pull from it" if pullers else "no worker pulls from it"
    return f"it waits for a worker that asks pool {task_state.pool}: {by}"


def silence_reason(daemon: str, left: float, unheard: float) -> str:
    """Who takes over what a silent daemon, or a pool's worker, runs; empty if it isn't silent.

    It is where nothing was heard of it for half of its lease, whose rest is `left` seconds.
    """
    if left > unheard:
        return ""
    heir, name = "another daemon takes the task over", daemon
    if puller := puller_of(daemon):
        heir, name = f"the task goes back to pool {puller[0]}", puller[1]
    then = f"in {duration(left)}, when its lease ends" if left > 0 else "as soon as a daemon runs"
    return f"nothing was heard of {name} for {duration(unheard)}: {heir} {then}"


def not_due_reason(task_state: TaskState) -> str:
    """Why a task that isn't due yet waits; without the words of handlers."""
    said = quiet_reason(task_state) or unknown_reason(task_state) or lost_reason(task_state)
    if said or not task_state.errors:
        return said or "it is not due yet"
    return f"attempt {task_state.attempt}, after {task_state.errors[-1]['error']}, is not due yet"


def lost_reason(task_state: TaskState) -> str:
    """Why a delayed task waits after lost leases; empty if it waits for something else."""
    if task_state.errors or not task_state.lost_leases or task_state.crashes < _ENDS_BEFORE_WAIT:
        return ""
    return f"waits before it runs again, since {_ends(task_state)}"


def _ends(task_state: TaskState) -> str:
    """How a quarantined task's claims ended."""
    ended = {
        "in a crash": task_state.deaths,
        "with a lost lease, or a stop that it outlived": task_state.lost_leases,
    }
    said = " and ".join(f"{number} {how}" for how, number in ended.items() if number)
    return said.replace(" ", " of its claims ended ", 1)


def hour_of(time: float) -> str:
    """The time of day of Unix seconds, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S UTC")


def duration(length: float) -> str:
    """So many seconds as people say them: "9.5 s", "18 min", "3 h", as the page does."""
    left = max(0.0, length)
    if left < 90:  # noqa: PLR2004
        return f"{left:.{1 if left < _EXACT else 0}f} s"
    if left < 90 * 60:
        return f"{left / 60:.0f} min"
    if left < 36 * 3600:
        hours = f"{left / 3600:.{1 if left < 10 * 3600 else 0}f}"
        return f"{hours.removesuffix('.0')} h"
    return f"{left / 86400:,.0f} days"


def counted(number: int, what: str) -> str:
    """How many there are: "1 group", "2 groups"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def waiting(number: int, what: str) -> str:
    """How many of these wait: "1 group waits", "2 groups wait"."""
    return f"{counted(number, what)} {'waits' if number == 1 else 'wait'}"


def quarantine_reason(task_state: TaskState, busy: list[str]) -> str:
    """Why a quarantined head waits; `busy` are the daemons that run another such task."""
    died = f"its head is in quarantine, since {_ends(task_state)}"
    if not busy:
        return f"{died}; it may be claimed: all workers are busy, or none is running"
    names = ", ".join(busy[:_NAMED]) + (f" and {len(busy) - _NAMED} more" * (len(busy) > _NAMED))
    return f"{died}: a daemon runs one such task at a time; that run another: {names}"


def delay_reason(task_state: TaskState, left: float, with_words: bool) -> str:
    """Why a head isn't due for so many seconds."""
    if not task_state.errors:
        after = f", since {_ends(task_state)}" if lost_reason(task_state) else ""
        return f"its head is delayed for another {duration(left)}{after}"
    error, message = task_state.errors[-1]["error"], task_state.errors[-1]["message"]
    said = f"{error}: {message}" if with_words and message else error
    return f"attempt {task_state.attempt} of its head is due in {duration(left)}, after {said}"


def due_reason(task_state: TaskState, facts: Mapping[str, Any]) -> str:
    """Why a task that is due waits, from what `find.lua` tells: of one of a group, by its pool."""
    of_pool, now = pool_reason(task_state, facts.get("pullers", 0)), facts["now"]
    if "group" in facts:
        return of_pool
    hold, of_type = facts.get("everything_paused"), named(facts.get("of_type", ()))
    of_tenant = named(facts.get("of_tenant", ()))
    limit = tenant_reason(of_tenant, now) if of_tenant else ""
    ends = f"; it is in quarantine, since {_ends(task_state)}" if task_state.crashes else ""
    found = (
        f"{orjson.loads(hold)[0]} paused everything" if hold else "",
        HELD_BACK if "recovering" in facts else "",
        of_pool,
        OUTBOX_FULL if "outbox_full" in facts else "",
        type_reason(of_type, now) if of_type else "",
        f"waits for its tenant's limit: {limit}" if limit else "",
        f"waits for a worker: all are busy, or none is running{ends}",
    )
    return next(filter(None, found))
