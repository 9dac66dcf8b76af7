"""Whether the event loop has gone on meanwhile, told by callbacks of its own."""

from __future__ import annotations

import asyncio


class LoopTurns:
    """Counts turns of the running loop, for as long as somebody asks.

    One callback at a time waits for a turn, whoever asks and however often.
    """

    def __init__(self) -> None:
        self._number = 0
        self._is_waiting = False

    def look(self) -> int:
        """A number that will be another one when everybody else has had a turn."""
        if not self._is_waiting:
            self._is_waiting = True
            asyncio.get_running_loop().call_soon(self._pass)
        return self._number

    def have_passed(self, since: int) -> bool:
        """Whether others had a turn since that look."""
        return self._number != since

    def _pass(self) -> None:
        self._is_waiting = False
        self._number += 1
