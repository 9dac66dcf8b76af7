"""spread: a daemon that has more queues than its share hands some over to daemons that stand by.

RabbitMQ gives a queue to the consumer that began first, so the first daemon gets all queues, and
keeps them. Each daemon consumes every queue; consumers that aren't active stand by, in a line. A
daemon that gets messages from more queues than its share gives up the surplus and stands at the end
of their lines; if the next daemon in line has its share already, it does the same. As the shares
cover all queues, each queue ends where there is room. Redis knows how many daemons there are:
RabbitMQ 3.10 doesn't count consumers that stand by. Nor does it heed their priorities; from 4.0 on
it does, but a priority knows nothing of shares.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Protocol

from groupflow.core.errors import StoreUnavailable

LOOK_EVERY = 2.0  # seconds between two looks at our queues, give or take a quarter


class Held(Protocol):
    """A queue as one daemon consumes it; an `Intake`."""

    queue: str

    @property
    def is_active(self) -> bool:
        """Whether its messages come to this daemon."""

    def hand_over(self) -> None:
        """Give it to a daemon that stands by."""


class Spread:
    """Keeps the active consumers of queues spread over daemons."""

    def __init__(
        self,
        name: str,
        intakes: Sequence[Held],
        count_daemons: Callable[[], Awaitable[int]],
    ) -> None:
        """Binds all intakes of a daemon of that name, and how many daemons consume their queues."""
        self._name = name
        self._intakes = intakes
        self._count_daemons = count_daemons

    async def pause(self) -> None:
        """Wait until the next look, out of step, or daemons might hand over to each other."""
        await asyncio.sleep(LOOK_EVERY * random.uniform(0.75, 1.25))  # noqa: S311  no secret

    async def run_once(self) -> list[str]:
        """Hand over surplus queues. Returns their names."""
        active = sorted(
            (intake for intake in self._intakes if intake.is_active), key=self._weight, reverse=True
        )
        # Only messages tell that a queue is ours; a queue without any loads no daemon.
        if len(active) <= 1:
            return []
        try:
            daemons = await self._count_daemons()
        except StoreUnavailable:
            return []  # no other daemon could do more with the queue than this one
        given_up = active[math.ceil(len(self._intakes) / max(1, daemons)) :]
        for intake in given_up:
            intake.hand_over()
        return [intake.queue for intake in given_up]

    def _weight(self, intake: Held) -> bytes:
        """How much this daemon wants a queue: each daemon prefers and gives up different ones."""
        return sha256(f"{self._name}\0{intake.queue}".encode()).digest()
