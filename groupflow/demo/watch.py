"""Waits for the import to end, and shows how far it is."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from groupflow.demo.daemons import Daemon
from groupflow.demo.history import read_attempts
from groupflow.demo.progress import Progress
from groupflow.demo.screen import Screen

_LOOK_EVERY = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up, in seconds.

    Attributes:
        total: after so long since the publishing began.
        standstill: if nothing was handled for so long.
    """

    total: float = 60.0
    standstill: float = 20.0


async def watch(
    database: Path,
    progress: Progress,
    screen: Screen,
    daemons: Sequence[Daemon],
    *,
    publishing: asyncio.Task[None],
    limits: Limits,
) -> str | None:
    """Follow the handlers' log until every task was handled.

    If the publishing fails, so does this, with the same exception.

    Returns:
        Why it gave up before, ``None`` if it did not.

    Raises:
        DaemonDied: a daemon ended.
    """
    began = last_news = time.monotonic()
    with closing(sqlite3.connect(database)) as db:
        while True:
            news = read_attempts(db, after=len(progress.attempts))
            progress.attempts += news
            now = time.monotonic()
            last_news = now if news else last_news
            snapshot = progress.snapshot(now)
            screen.show(snapshot)
            if snapshot.complete:
                return None
            handled = f"{snapshot.handled:,} of {snapshot.total:,} tasks were handled"
            if now - began > limits.total:
                return f"Gave up after {limits.total:.0f} s: {handled}."
            if now - last_news > limits.standstill:
                return f"Gave up after {limits.standstill:.0f} s without progress: {handled}."
            for daemon in daemons:
                daemon.check()
            if publishing.done():
                publishing.result()
            await asyncio.sleep(_LOOK_EVERY)
