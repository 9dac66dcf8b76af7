"""Where a process is: what each of its tasks waits for, told by functions of the product."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import groupflow

_OURS = str(Path(groupflow.__file__).parent) + "/"
# What many pass through: their callers tell more.
_COMMON = (
    "store/client.py",
    "store/wire.py",
    "store/node.py",
    "flow/parts.py",
    "upkeep/duty.py",
)
# Where a death may cost something: the tests of coverage ask for each of them.
WRITES = "store/enqueue.py:Enqueuer._write"
CLAIMS = "store/claims.py:Claims.exchange"
HANDLES = "flow/python_handlers.py:PythonRunner._call"
RENEWS = "store/sessions.py:Sessions.renew"
REGISTERS = "store/sessions.py:Sessions._register"
REAPS = "store/sessions.py:Sessions.reap"
PROMOTES = "upkeep/promote.py:promote"
STOPS = "daemon.py:Daemon._stop"
LEAVES = "store/sessions.py:Sessions.leave"
ANSWERED = ", answered"
"""Behind the place of a task whose answer has come, and which has not gone on yet."""
_ASKING = (WRITES, CLAIMS, RENEWS, REGISTERS, REAPS, PROMOTES, LEAVES)
CRITICAL = (*_ASKING, *(place + ANSWERED for place in _ASKING), HANDLES, STOPS)
"""All of them; where an answer is waited for, and where it has come."""


def place_of(task: asyncio.Task[Any]) -> str:
    """What a task is about, and whether that is answered."""
    return _function_of(task) + (ANSWERED if _is_answered(task) else "")


def _function_of(task: asyncio.Task[Any]) -> str:
    """The innermost function that says it, as ``file.py:Class.method``."""
    place = ""
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None)
        if frame is not None and frame.f_code.co_filename.startswith(_OURS):
            file = frame.f_code.co_filename.removeprefix(_OURS)
            if file not in _COMMON or not place:
                place = f"{file}:{frame.f_code.co_qualname}"
        inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)
    return place


def _is_answered(task: asyncio.Task[Any]) -> bool:
    waits_for = getattr(task, "_fut_waiter", None)
    return waits_for is None or waits_for.done()


def places_of(tasks: Iterable[asyncio.Task[Any]]) -> set[str]:
    """Those of all tasks that are in the product."""
    return {place for task in tasks if not task.done() and ":" in (place := place_of(task))}


def is_any_at(
    aim: str, tasks: Iterable[asyncio.Task[Any]], known: dict[asyncio.Task[Any], str]
) -> bool:
    """Whether one of some tasks is there; `known` has those that took no step since."""
    function, answered, _ = aim.partition(ANSWERED)
    for task in tasks:
        if task.done():
            continue
        if task not in known:
            known[task] = _function_of(task)
        if known[task].startswith(function) and (not answered or _is_answered(task)):
            return True
    return False
