"""enqueue: a batch of messages becomes durable, in order, as waiting tasks or dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from groupflow.store.client import Argument, StoreClient
from groupflow.store.envelope import Envelope
from groupflow.store.scripts import Verb

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message on its way into the store.

    Attributes:
        id: the task's id.
        envelope: what to keep of the message.
        priority: seconds by which it counts as older than it is.
        delay: seconds before which it may not run.
        steps_aside: whether its group goes on during that delay.
        dead: the reason why it is a dead letter from the start, empty for a task.
    """

    id: str
    envelope: Envelope
    priority: float = 0.0
    delay: float = 0.0
    steps_aside: bool = False
    dead: str = ""

    def arguments(self) -> tuple[Argument, ...]:
        """The eight arguments that `enqueue.lua` takes for one message."""
        errors = orjson.dumps([{"error": "rejected", "message": self.dead}]) if self.dead else b""
        return (
            self.id,
            self.envelope.group or "",
            round(self.priority * MICROSECONDS),
            round(self.delay * MICROSECONDS),
            "aside" if self.steps_aside else "",
            self.dead,
            errors,
            self.envelope.pack(),
        )


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a batch.

    Attributes:
        queued: how many tasks wait in the store now.
        taken: for each message, whether it is new; ``False`` is a duplicate.
    """

    queued: int
    taken: list[bool]


class Enqueuer:
    """Writes batches. Running one again is safe: what was taken is a duplicate the second time."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def enqueue(self, arrivals: Sequence[Arrival]) -> Enqueued:
        """Make a batch durable by one script.

        Raises:
            StoreUnavailable: no answer; the batch may have been written. Try again.
            StoreFull: Redis has no memory for it; nothing was written.
        """
        arguments: list[Argument] = []
        for arrival in arrivals:
            arguments.extend(arrival.arguments())
        queued, taken = await self._client.run(Verb.ENQUEUE, *arguments)
        return Enqueued(queued=queued, taken=[verdict == 1 for verdict in taken])
