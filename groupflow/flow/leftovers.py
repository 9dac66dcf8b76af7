"""Finds in ``/proc`` which processes a command has started, however they have left it.

A process belongs to a command if it descends from it, is in its session or process group, or
carries its mark in its environment. So one that went into a session of its own (``setsid``) is
found by its descent as long as its parents live, and by the mark after that; only one that also
cleared its environment is missed. This needs no rights, and looks into no process older than the
command.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

MARK = "GROUPFLOW_MARK"

_PROC = Path("/proc")
_MARK = f"{MARK}=".encode()
_GONE = (ProcessLookupError, FileNotFoundError, PermissionError)


@dataclass(frozen=True, slots=True)
class Entry:
    """A process, as the kernel describes it."""

    pid: int  # its number; unique on this machine together with `start`
    parent: int  # the number of its parent
    group: int  # of its process group
    session: int  # of its session
    start: int  # when it started, in the kernel's own ticks


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


@dataclass(frozen=True, slots=True)
class Look:
    """What one look into ``/proc`` has found."""

    since: int  # no process that started earlier is in `marks`
    marks: Mapping[Entry, frozenset[bytes]]  # all younger ones, with their environment's marks


def look_around(since: int) -> Look:
    """Look at all living processes that started at `since` or later: costs 0.1 ms each."""
    young = [each for each in _all() if each.start >= since]
    return Look(since, {each: _marks(each.pid) for each in young})


def family(seen: Look, leader: int, since: int, mark: bytes) -> set[Entry]:
    """All processes that a command has started, without itself.

    Args:
        seen: a look that goes back to `since` at least.
        leader: the command, which leads a session of its own and isn't reaped yet.
        since: when it started, as an `Entry` has it.
        mark: the mark in the environment of all of them.
    """
    young = [each for each in seen.marks if each.start >= since and each.pid != leader]
    found = {leader}
    ours: set[Entry] = set()
    for each in young:
        if leader in (each.session, each.group) or mark in seen.marks[each]:
            found.add(each.pid)
            ours.add(each)
    while more := {each for each in young if each.parent in found and each not in ours}:
        ours |= more
        found |= {each.pid for each in more}
    return ours


class Looks:
    """Looks in a thread of their own, one at a time, each for all callers before it began.

    A look that began before a call may have missed what was started, or stopped, since.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "leftovers")
        self._lock = Lock()
        self._next: Future[Look] | None = None
        self._since = 0

    async def after_now(self, since: int) -> Look:
        """A look that begins after this call, and goes back to `since`."""
        try:
            looking = self._asked(since)
        except RuntimeError:  # no thread can be started
            return look_around(since)
        # Other callers wait for the same look, so no caller's cancellation may reach it.
        return await asyncio.shield(asyncio.wrap_future(looking))

    def _asked(self, since: int) -> Future[Look]:
        with self._lock:
            self._since = since if self._next is None else min(since, self._since)
            if self._next is None:
                self._next = self._thread.submit(self._look)
            return self._next

    def _look(self) -> Look:
        with self._lock:  # callers from here on get the next look
            self._next = None
            since = self._since
        return look_around(since)


def send(number: signal.Signals, to: Iterable[Entry]) -> None:
    """Send a signal to those processes that are still the same."""
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


def _marks(pid: int) -> frozenset[bytes]:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # ended, or another user's
        return frozenset()
    if _MARK not in environment:
        return frozenset()
    words = environment.split(b"\0")
    return frozenset(word.removeprefix(_MARK) for word in words if word.startswith(_MARK))
