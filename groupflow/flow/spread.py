"""spread: a daemon that has more queues than its share hands some over to daemons that stand by.

RabbitMQ gives a queue to whoever began to consume it first, so that the first daemon to come has
all of them, and keeps them. Each daemon consumes every queue; those that are not active stand by,
in a line. Whoever finds that more queues send it messages than its share gives up what is too much
and stands at the end of their lines; if the next in line has its share already, it does the same.
As shares make up for all queues, each of them ends where there is room. How many daemons there are
is known in Redis: RabbitMQ 3.10 counts nobody who stands by. Nor does it heed priorities among
those; from 4.0 on it does, but a priority knows nothing of shares.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Protocol

from groupflow.core.errors import StoreUnavailable

LOOK_EVERY = 2.0  # seconds, more or less, between two looks at what we have


class Held(Protocol):
    """A queue as one daemon consumes it; an `Intake`."""

    queue: str

    @property
    def is_active(self) -> bool:
        """Whether its messages come here."""

    def hand_over(self) -> None:
        """Give it to whoever stands by."""


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
        """Wait until the next look, not in step with others: they might hand over to each other."""
        await asyncio.sleep(LOOK_EVERY * random.uniform(0.75, 1.25))  # noqa: S311  no secret

    async def run_once(self) -> list[str]:
        """Hand over what is too much; the names of those queues."""
        active = sorted(
            (intake for intake in self._intakes if intake.is_active), key=self._weight, reverse=True
        )
        # Nothing but messages tells that a queue is ours; one without any is no load on anybody.
        if len(active) <= 1:
            return []
        try:
            daemons = await self._count_daemons()
        except StoreUnavailable:
            return []  # who would have it could do no more with it than we
        given_up = active[math.ceil(len(self._intakes) / max(1, daemons)) :]
        for intake in given_up:
            intake.hand_over()
        return [intake.queue for intake in given_up]

    def _weight(self, intake: Held) -> bytes:
        """How much this daemon wants a queue: each wants others, and no two give up the same."""
        return sha256(f"{self._name}\0{intake.queue}".encode()).digest()
