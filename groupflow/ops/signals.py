"""Signals that ask a process to end, each of which often comes twice.

`timeout`, and supervisors that signal a process and its group, send one twice within milliseconds.
Only a later signal means that the operator doesn't want to wait.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

ECHO = 1.0  # seconds behind the first signal within which another one is its echo


class Ending:
    """Acts on each signal."""

    def __init__(
        self,
        stop: Callable[[], object],
        hurry: Callable[[signal.Signals], object],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Calls `stop` for the first signal, and `hurry` for each later one that is no echo."""
        self._stop, self._hurry, self._clock = stop, hurry, clock
        self._first: float | None = None

    def on_signal(self, number: signal.Signals) -> None:
        """One has come."""
        now = self._clock()
        if self._first is None:
            self._first = now
            self._stop()
        elif now - self._first >= ECHO:
            self._hurry(number)

    def listen(self, numbers: Iterable[signal.Signals]) -> None:
        """Handle these signals on the running loop."""
        for number in numbers:
            asyncio.get_running_loop().add_signal_handler(number, self.on_signal, number)


def cancelled_by_signals() -> asyncio.Task[Any]:
    """The current task; Ctrl-C, a SIGTERM or a terminal that is closed cancels it from now on."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  we are called from it
    ending = Ending(task.cancel, lambda _: task.cancel())
    ending.listen((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    return task
