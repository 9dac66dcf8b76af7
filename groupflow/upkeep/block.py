"""block: watches from the lease's thread whether the loop that handles tasks still turns.

A handler that computes, or makes a blocking call, stops the whole loop. Its task is safe as long as
the lease is renewed, so the daemon renews it for a while (`workers.max_block`). A loop that never
comes back must not hold its tasks for ever: the daemon stops renewing, and others take over.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, TypeAlias

import structlog

from groupflow.core.measures import UpkeepMeasures

log = structlog.get_logger("groupflow.loop")

FRAMES = 6  # of the handler, the innermost
_OURS = str(Path(__file__).parents[1])

Naming: TypeAlias = Callable[[asyncio.Task[Any] | None], Mapping[str, Any]]
"""What to log of the attempt that runs in an asyncio task; empty where none does."""


class BlockWatch:
    """Watches one loop; made on it, asked from elsewhere."""

    def __init__(
        self,
        turned: Callable[[], float],
        naming: Naming,
        *,
        lease: float,
        max_block: float,
        measures: UpkeepMeasures,
    ) -> None:
        """Watches nothing before `begin`.

        Args:
            turned: when (monotonic) the loop last turned.
            naming: names the attempt that blocks it.
            lease: seconds; a block as long is reported.
            max_block: seconds; a longer block loses the lease.
            measures: counts blocks.
        """
        self._turned = turned
        self._naming = naming
        self._lease = lease
        self._max_block = max_block
        self._measures = measures
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._seen = 0.0  # what `turned` said at the look before
        self._told = 0.0  # what it said when a block was reported; 0 where none is
        self.has_given_up = False  # the loop surely stands for longer than it may
        # Fence and id of the task that made it give up; None where none is known
        self.culprit: tuple[int, str] | None = None

    def begin(self) -> None:
        """Watch the loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def is_within(self) -> bool:
        """Whether the loop turns, or has stood for no longer than it may."""
        return monotonic() - self._turned() < self._max_block

    def look(self) -> bool:
        """Report a block, and its end.

        Returns:
            Whether the loop has turned lately enough for the lease to be renewed.
        """
        turned = self._turned()
        stood = monotonic() - turned
        # After a freeze of the whole process, this look may come before the loop's first turn: the
        # loop is blocked only if it hasn't turned by the next look.
        is_sure, self._seen = turned == self._seen, turned
        if self._told and turned != self._told:
            log.warning("loop.unblocked", blocked_for=round(turned - self._told, 3))
            self._told, self.has_given_up = 0.0, False
        if is_sure and stood >= self._lease and not self._told:
            self._told = turned
            self._measures.loop_blocks += 1
            remedy = "make what blocks a plain function: it runs in a thread"
            self._tell("warning", "loop.blocked", stood, remedy)
        is_within = stood < self._max_block
        if is_sure and not is_within and not self.has_given_up:
            named = self._naming(asyncio.current_task(self._loop))
            self.culprit = (named["fence"], named["task"]) if "fence" in named else None
            self.has_given_up = True
            self._measures.loop_given_up += 1
            remedy = "its lease is given up, and others take its tasks over: restart this daemon"
            self._tell("error", "loop.given_up", stood, remedy)
        return is_within

    def _tell(self, level: str, event: str, stood: float, remedy: str) -> None:
        facts = {"blocked_for": round(stood, 3), "max_block": self._max_block}
        where = _where(sys._current_frames().get(self._thread))
        running = asyncio.current_task(self._loop)
        getattr(log, level)(event, **facts, at=where, **self._naming(running), remedy=remedy)


def _where(frame: FrameType | None) -> list[str]:
    """Where a thread stands: files, lines and functions, the innermost first; never a value."""
    found: list[str] = []
    while frame is not None and len(found) < FRAMES:
        code = frame.f_code
        if found and code.co_filename.startswith(_OURS):
            break  # our code, which called the handler
        found.append(f"{code.co_filename}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return found
