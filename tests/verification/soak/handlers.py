"""The handlers of a soak: those of a simulation, and two that only real processes can have."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

from groupflow import Task
from tests.history.configuration import BLOCKED_PAST, BLOCKED_WITHIN
from tests.history.events import Journal
from tests.history.handlers import app_of, noted, tell_where

JOURNAL = "SOAK_JOURNAL"
QUICK, SLOW = (0.002, 0.012), (0.1, 0.6)  # seconds; a slow one is met by faults

_write = Journal(Path(os.environ.get(JOURNAL, os.devnull))).write
app = app_of(_write, random.Random(), quick=QUICK, slow=SLOW)
app.lifespan(tell_where)


def _block(seconds: float) -> None:
    """Sleep, thread and all. (Under libfaketime 0.9.10 `time.sleep` fails: its clock_nanosleep.)"""
    threading.Event().wait(seconds)


@app.handler("thread")
def in_thread(task: Task) -> None:
    """Take a few milliseconds in a thread, which no daemon can cancel."""
    with noted(_write, task):
        _block(random.uniform(*QUICK))


@app.handler("block")
@app.handler("block-past")
async def block(task: Task) -> None:
    """Block the daemon's event loop past its lease, once: within `max_block`, or past it."""
    with noted(_write, task):
        if task.crashes == 0:
            _block(BLOCKED_WITHIN if task.type == "block" else BLOCKED_PAST)
