"""Which processes a command has started, however they have left it: found in ``/proc``.

A process belongs to a command if it descends from it, is in its session or process group, or
carries its mark in its environment. So one that went into a session of its own (``setsid``) is
found by its descent as long as its parents live, and by the mark after that; only one that also
cleared its environment is not. No rights are needed, and no process older than the command is
looked into.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_GONE = (ProcessLookupError, FileNotFoundError, PermissionError)


@dataclass(frozen=True, slots=True)
class Entry:
    """A process, as the kernel tells of it.

    Attributes:
        pid: its number; with `start`, no other process of this machine is the same.
        parent: the number of its parent.
        group: of its process group.
        session: of its session.
        start: when it started, in the kernel's own ticks.
    """

    pid: int
    parent: int
    group: int
    session: int
    start: int


def look(pid: int) -> Entry | None:
    """A process, or ``None`` where it has ended."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except (OSError, ValueError):
        return None
    # Its name comes first, in brackets, and may have brackets and blanks in it.
    fields = text.rpartition(b") ")[2].split()
    if fields[0] in b"ZX":
        return None
    return Entry(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def family(leader: int, since: int, mark: bytes) -> set[Entry]:
    """All living processes that a command has started, without itself.

    Args:
        leader: the command, which leads a session of its own and was not yet waited for.
        since: when it started, as an `Entry` has it.
        mark: what the environment of all of them has in it.
    """
    young = [each for each in _all() if each.start >= since and each.pid != leader]
    found = {leader}
    ours: set[Entry] = set()
    for each in young:
        if leader in (each.session, each.group) or _is_marked(each.pid, mark):
            found.add(each.pid)
            ours.add(each)
    while more := {each for each in young if each.parent in found and each not in ours}:
        ours |= more
        found |= {each.pid for each in more}
    return ours


def send(number: signal.Signals, to: Iterable[Entry]) -> None:
    """Send a signal to processes, to those of them that are still the same."""
    for each in to:
        now = look(each.pid)
        if now is not None and now.start == each.start:
            with suppress(*_GONE):
                os.kill(each.pid, number)


def _all() -> Iterator[Entry]:
    with suppress(OSError):
        for name in os.listdir(_PROC):  # noqa: PTH208  numbers as text, thousands of them
            if name.isdecimal() and (entry := look(int(name))) is not None:
                yield entry


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # ended, or another user's
        return False
