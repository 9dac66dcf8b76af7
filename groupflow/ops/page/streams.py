"""Bounds the open event streams, with room for a newcomer.

A stream costs little, but each is a connection that stays. At the limit, a new one ends the oldest
that showed no token (its page, if it is one, opens another). So neither a hundred idle streams nor
one address can keep the others out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from groupflow.ops.page.endpoints import Caller

MOST = 100  # in all
MOST_OF_ONE = 20  # of one address: the open tabs of one person, or of a few behind a proxy


@dataclass(eq=False, slots=True)
class Stream:
    caller: Caller  # whose it is
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # set once it has to end


class Streams:
    """The open streams, the oldest first."""

    def __init__(self) -> None:
        self._open: dict[Stream, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, caller: Caller) -> Stream | None:
        """Open a stream, and end another at the limit; ``None`` where none may be ended.

        A stream with the token is only ended for another with the token.
        """
        peers = Counter(stream.caller.peer for stream in self._open)
        crowded = [s for s in self._open if s.caller.peer == caller.peer]
        if peers[caller.peer] >= MOST_OF_ONE and not self._end_one(crowded, caller):
            return None
        if len(self._open) >= MOST and not self._end_one(list(self._open), caller):
            return None
        stream = Stream(caller)
        self._open[stream] = None
        return stream

    def _end_one(self, streams: list[Stream], caller: Caller) -> bool:
        anonymous = [stream for stream in streams if not stream.caller.shows_token]
        for stream in anonymous or (streams if caller.shows_token else []):
            self.leave(stream)
            return True
        return False

    def leave(self, stream: Stream) -> None:
        """End a stream, or take note that it has ended."""
        self._open.pop(stream, None)
        stream.ended.set()

    def end_all(self) -> None:
        for stream in list(self._open):
            self.leave(stream)
