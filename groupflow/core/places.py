"""Where a dead letter's body lies once it has left Redis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A place in RabbitMQ's stream.

    Attributes:
        offset: its number there.
        message_id: the id under which it was published, which proves that it is the one.
    """

    offset: int
    message_id: str
